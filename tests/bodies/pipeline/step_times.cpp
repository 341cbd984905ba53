// The uses of a step's time, and what it moves, in its result and in the timeline.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pipeline/pipeline.hpp"
#include "tests/bodies/pipeline/support.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/trace_events.hpp"

namespace bluefog::testing {
namespace {

using pipeline::Pipeline;
using pipeline::PipelineBatch;
using pipeline::ReplicaSync;
using pipeline::StepResult;
using pipeline::StepTimes;
using std::chrono::steady_clock;
using ::testing::IsSupersetOf;

/// Values of a row behind each layer of `five_layers`.
constexpr std::int64_t kWidths[] = {8, 8, 8, 8, 8, 7, 7, kClasses};
constexpr std::int64_t kRows = 12;
constexpr std::int64_t kMicroBatches = 3;

/// Activations of this stage's rows, and gradients of those that it has got.
std::int64_t expected_stage_bytes(const Pipeline& pipeline, std::int64_t rows) {
  const int stage = pipeline.stage();
  std::int64_t values = 0;
  if (stage < pipeline.partition().stages() - 1) {
    values += rows * kWidths[pipeline.partition().end(stage) - 1];
  }
  if (stage > 0) {
    values += rows * kWidths[pipeline.partition().begin(stage) - 1];
  }
  return values * static_cast<std::int64_t>(sizeof(double));
}

/// Messages that leave the machine, of two ranks each: rank 1 sends to 2, and 2 to 1.
std::int64_t expected_syncs(const Context& context, int stages) {
  if (context.machines().machine_count() == 1) {
    return 0;
  }
  const bool is_at_the_border = context.rank() == 1 || context.rank() == 2;
  return stages == context.size() ? (is_at_the_border ? kMicroBatches : 0) : 1;
}

void check_traffic(Context& context, ReplicaSync sync) {
  for (const int stages : stages_on(context.size())) {
    auto model = five_layers();
    Pipeline pipeline(
        context.shared_from_this(), model.ptr(), squares,
        {.stages = stages, .micro_batches = static_cast<int>(kMicroBatches), .replicas = sync});
    torch::optim::SGD sgd(model->parameters(), 0.01);
    const PipelineBatch batch = AllRows(kRows).of(pipeline.layout(), context.rank());
    std::int64_t parameters = 0;
    for (const auto& [name, tensor] : pipeline.trained_parameters()) {
      parameters += tensor.numel();
    }
    for (int step = 0; step < 2; ++step) {
      const StepResult result = pipeline.step(sgd, batch);
      EXPECT_EQ(result.traffic.stage_bytes, expected_stage_bytes(pipeline, batch.rows));
      EXPECT_EQ(result.traffic.averaged_parameters, stages == context.size() ? 0 : parameters);
      const auto own_bytes = result.traffic.averaged_parameters * std::int64_t{sizeof(double)};
      EXPECT_GE(result.traffic.averaged_bytes, own_bytes);  // and where each begins
      EXPECT_EQ(result.traffic.averaged_bytes > 0, stages < context.size());
      EXPECT_EQ(result.traffic.machine_syncs, expected_syncs(context, stages))
          << "rank " << context.rank() << ", " << stages << " stages";
    }
  }
}

TEST(PipelineSteps, TrafficIsCounted) {
  for (const ReplicaSync sync : {ReplicaSync::Gradients, ReplicaSync::Parameters}) {
    on_ranks(pipeline_ranks(), [&](Context& context) { check_traffic(context, sync); });
  }
}

TEST(PipelineSteps, MessagesBetweenMachinesAreCounted) {
  Ranks four = pipeline_ranks(4, 4);
  four.settings = [](Settings& settings, int /*rank*/) { settings.nodes_per_machine = 2; };
  on_ranks(four, [](Context& context) { check_traffic(context, ReplicaSync::Gradients); });
}

TEST(PipelineSteps, TimesDoNotOverlap) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    for (const int stages : stages_on(context.size())) {
      auto model = five_layers();
      Pipeline pipeline(context.shared_from_this(), model.ptr(), squares, {.stages = stages});
      torch::optim::SGD sgd(model->parameters(), 0.01);
      const PipelineBatch batch = AllRows(kRows).of(pipeline.layout(), context.rank());
      const StepTimes times = pipeline.step(sgd, batch).times;
      EXPECT_GT(times.forward, 0);
      EXPECT_GT(times.backward, 0);
      EXPECT_GT(times.optimizer, 0);
      EXPECT_EQ(times.averaging > 0, stages < context.size());
      EXPECT_GE(times.averaging_whole, times.averaging);
      EXPECT_EQ(times.averaging_whole > 0, stages < context.size());
      EXPECT_EQ(times.loading, 0);
      EXPECT_GE(times.total,
                times.forward + times.backward + times.waiting + times.averaging + times.optimizer);
    }
  });
}

TEST(PipelineSteps, LoadingCountsFromTheEndOfTheStepBefore) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares, {});
    PipelineBatch batch = AllRows(kRows).of(pipeline.layout(), context.rank());
    constexpr std::chrono::hours kHour(1);
    batch.loading_began = steady_clock::now() - kHour;
    EXPECT_GE(pipeline.compute_gradients(batch).times.loading, 3600);
    const StepTimes next = pipeline.compute_gradients(batch).times;
    EXPECT_GT(next.loading, 0);
    EXPECT_LT(next.loading, 3600) << "the step before was no loading";
    batch.loading_began = steady_clock::now() + kHour;
    EXPECT_EQ(pipeline.compute_gradients(batch).times.loading, 0);
  });
}

/// The spans of the row of a pipeline's steps, of the ranks in this process.
std::map<int, std::vector<TraceSpan>> traced_steps(int stages) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("bluefog_steps_{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::mutex mutex;
  std::map<int, std::vector<TraceSpan>> spans;
  Ranks two = pipeline_ranks(2, 2);
  two.settings = [&](Settings& settings, int /*rank*/) { settings.timeline = folder / "trace"; };
  on_ranks(two, [&](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                      {.stages = stages, .micro_batches = 2});
    torch::optim::SGD sgd(model->parameters(), 0.01);
    PipelineBatch batch = AllRows(kRows).of(pipeline.layout(), context.rank());
    for (int step = 0; step < 2; ++step) {
      batch.loading_began = steady_clock::now();
      pipeline.step(sgd, batch);
    }
    pipeline.evaluate(batch);
    const std::scoped_lock lock(mutex);
    spans[context.rank()];
  });
  for (auto& [rank, of_rank] : spans) {
    of_rank = spans_of(read_trace(folder / fmt::format("trace{}.json", rank)));
    std::erase_if(of_rank, [](const TraceSpan& span) { return span.row != "pipeline"; });
  }
  std::filesystem::remove_all(folder);
  return spans;
}

/// The names of the spans inside of the first one called `outer`.
std::vector<std::string> inside(const std::vector<TraceSpan>& spans, const std::string& outer) {
  const auto found = std::ranges::find(spans, outer, &TraceSpan::name);
  std::vector<std::string> names;
  for (const TraceSpan& span : spans) {
    if (found != spans.end() && found->holds(span) && span.name != outer) {
      names.push_back(span.name);
    }
  }
  return names;
}

TEST(PipelineSteps, ATimelineShowsPassesAndWaits) {
  for (const auto& [rank, spans] : traced_steps(2)) {
    EXPECT_EQ(std::ranges::count(spans, "LOAD", &TraceSpan::name), 2);
    EXPECT_EQ(std::ranges::count(spans, "STEP", &TraceSpan::name), 2);
    EXPECT_THAT(inside(spans, "STEP"),
                IsSupersetOf({"FORWARD 0", "FORWARD 1", "BACKWARD 0", "BACKWARD 1",
                              rank == 0 ? "WAIT FOR GRADIENT 0" : "WAIT FOR ACTIVATION 0",
                              "WAIT UNTIL SENT", "OPTIMIZER"}));
    EXPECT_THAT(inside(spans, "EVALUATE"), IsSupersetOf({"FORWARD 0", "FORWARD 1"}));
  }
}

TEST(PipelineSteps, ATimelineShowsWhatReplicasSum) {
  for (const auto& [rank, spans] : traced_steps(1)) {
    EXPECT_THAT(inside(spans, "STEP"),
                IsSupersetOf({"FORWARD 0", "BACKWARD 0", "SUM GRADIENTS", "OPTIMIZER"}));
  }
}

}  // namespace
}  // namespace bluefog::testing
