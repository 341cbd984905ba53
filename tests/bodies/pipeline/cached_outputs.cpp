// Outputs of frozen layers that are computed once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "pipeline/epoch_shares.hpp"
#include "pipeline/pipeline.hpp"
#include "tests/bodies/pipeline/support.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using pipeline::CacheOptions;
using pipeline::Pipeline;
using ::testing::HasSubstr;

constexpr std::int64_t kSamples = 40;

/// Rows on all ranks together.
struct EpochRows {
  std::int64_t cached = 0;   ///< whose outputs came from the cache
  std::int64_t resumed = 0;  ///< that went on from an earlier depth
};

/// Epochs of a pipeline, with a cache or without.
class EpochRun {
 public:
  EpochRun(Context& context, int stages, const std::optional<CacheOptions>& cache)
      : context_(context),
        pipeline_(context.shared_from_this(), model_.ptr(), squares,
                  {.stages = stages, .micro_batches = 3, .cache = cache}),
        optimizer_(model_->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)) {}

  void rearrange(const pipeline::Arrangement& wanted) { pipeline_.rearrange(wanted, optimizer_); }

  /// @return the rows that came from the cache, on all ranks together.
  std::int64_t train_epoch(std::int64_t epoch) { return epoch_rows(epoch).cached; }

  EpochRows epoch_rows(std::int64_t epoch) {
    shares_.begin_epoch(epoch);
    std::array<std::int64_t, 2> found{};
    while (shares_.left() > 0) {
      const auto own = shares_.next(pipeline_.layout().replicas(), pipeline_.replica());
      const at::Tensor rows = torch::tensor(own.samples, at::kLong);
      const auto result =
          pipeline_.step(optimizer_, {.inputs = data_.inputs.index_select(0, rows),
                                      .targets = data_.targets.index_select(0, rows),
                                      .rows = std::ssize(own.samples),
                                      .all_rows = own.rows,
                                      .samples = own.samples});
      found[0] += result.cached_rows;
      found[1] += result.resumed_rows;
    }
    ops::allreduce(context_, {.data = found.data(), .count = 2, .dtype = Dtype::Int64},
                   {.reduction = ops::Reduction::Sum});
    return {.cached = found[0], .resumed = found[1]};
  }
  Pipeline& pipeline() { return pipeline_; }
  torch::nn::Sequential& model() { return model_; }

 private:
  Context& context_;
  AllRows data_{kSamples};
  torch::nn::Sequential model_ = five_layers();
  Pipeline pipeline_;
  torch::optim::SGD optimizer_;
  pipeline::EpochShares shares_{kSamples, 12, 4};
};

CacheOptions for_all(std::int64_t memory_rows) {
  // Rows of 8 values take 64 bytes.
  return {.samples = kSamples,
          .memory_bytes = memory_rows * 64,
          .disk_bytes = 1 << 20,
          .folder = std::filesystem::temp_directory_path().string()};
}

void expect_same_parameters(EpochRun& found, EpochRun& expected) {
  const auto ours = found.pipeline().trained_parameters();
  const auto theirs = expected.pipeline().trained_parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE((ours[i].tensor - theirs[i].tensor).abs().max().item<double>(), kPipelineTolerance);
  }
}

TEST(CachedOutputs, TrainingIsWhatItIsWithoutThem) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    const int stages = context.size() == 4 ? 2 : 1;
    EpochRun plain(context, stages, {});
    EpochRun cached(context, stages, for_all(kSamples / 2));
    EXPECT_EQ(cached.train_epoch(0), 0);
    plain.train_epoch(0);
    for (const pipeline::Arrangement& wanted :
         {pipeline::Arrangement{.stages = stages, .frozen = 2},
          pipeline::Arrangement{.stages = 1, .frozen = 4}}) {
      plain.rearrange(wanted);
      for (std::int64_t epoch = 1; epoch < 4; ++epoch) {
        cached.rearrange(wanted);  // which it has, from the second epoch on
        plain.train_epoch(epoch);
        // Whichever pipeline has a sample in an epoch finds what another one has stored.
        EXPECT_EQ(cached.train_epoch(epoch), epoch == 1 ? 0 : kSamples);
      }
    }
    expect_same_parameters(cached, plain);
  });
}

/// Hosts have caches of their own, whose ranks may be those of several pipelines.
TEST(CachedOutputs, AreEachHostsOwn) {
  Ranks ranks = pipeline_ranks(2);
  ranks.layouts = {Layout::TwoHosts, Layout::NetworkOnly};
  on_ranks(ranks, [](Context& context) {
    const int stages = context.size() == 4 ? 2 : 1;
    EpochRun plain(context, stages, {});
    EpochRun cached(context, stages, for_all(kSamples));
    std::int64_t found = 0;
    for (const pipeline::Arrangement& wanted :
         {pipeline::Arrangement{.stages = stages, .frozen = 3},
          pipeline::Arrangement{.stages = 1, .frozen = 5}}) {
      plain.rearrange(wanted);
      cached.rearrange(wanted);
      for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
        plain.train_epoch(epoch);
        found += cached.train_epoch(epoch);
      }
    }
    EXPECT_GT(found, 0);
    EXPECT_LE(found, 6 * kSamples);
    expect_same_parameters(cached, plain);
  });
}

/// The layers before the depth that was kept are not computed again, by whichever pipeline.
TEST(CachedOutputs, AnotherDepthGoesOnFromThem) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    const int stages = context.size() == 4 ? 2 : 1;
    EpochRun plain(context, stages, {});
    EpochRun cached(context, stages, for_all(kSamples / 2));
    std::int64_t epoch = 0;
    // Three ranks cannot have two stages.
    const std::vector<pipeline::Arrangement> all{
        {.stages = stages, .frozen = 2}, {.stages = 1, .frozen = 3}, {.stages = 1, .frozen = 5}};
    for (const pipeline::Arrangement& wanted : all) {
      plain.rearrange(wanted);
      cached.rearrange(wanted);
      plain.train_epoch(epoch);
      const EpochRows rows = cached.epoch_rows(epoch++);
      EXPECT_EQ(rows.cached, 0);
      // All but the first micro-batch of each pipeline, which shows the form of rows: 4 of 12.
      const std::int64_t replicas = cached.pipeline().layout().replicas();
      const std::int64_t shown = replicas * ((12 / replicas + 2) / 3);
      EXPECT_EQ(rows.resumed, wanted.frozen == 2 ? 0 : kSamples - shown) << wanted.frozen;
    }
    expect_same_parameters(cached, plain);
  });
}

TEST(CachedOutputs, AnotherDepthDoesNotGoOnFromStaleOnes) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    EpochRun run(context, 1, for_all(kSamples));
    run.rearrange({.stages = 1, .frozen = 2});
    run.train_epoch(0);
    {
      const torch::NoGradGuard no_grad;
      run.model()->ptr(0)->parameters().front().add_(1);
    }
    run.rearrange({.stages = 1, .frozen = 3});
    const EpochRows rows = run.epoch_rows(1);
    EXPECT_EQ(rows.cached, 0);
    EXPECT_EQ(rows.resumed, 0);
  });
}

/// Another number of stages leaves what is kept, where its depth stays.
TEST(CachedOutputs, OtherStagesKeepThem) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    EpochRun run(context, context.size(), for_all(kSamples));
    run.rearrange({.stages = context.size(), .frozen = 1});
    run.train_epoch(0);
    run.rearrange({.stages = 1, .frozen = 1});
    EXPECT_GT(run.epoch_rows(1).cached, 0);
  });
}

TEST(CachedOutputs, OtherFrozenParametersMakeThemStale) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    EpochRun run(context, 1, for_all(kSamples));
    run.rearrange({.stages = 1, .frozen = 2});
    run.train_epoch(0);
    EXPECT_EQ(run.train_epoch(1), kSamples);
    {
      const torch::NoGradGuard no_grad;
      run.model()->ptr(0)->parameters().front().add_(1);
    }
    EXPECT_EQ(run.train_epoch(2), 0);
  });
}

TEST(CachedOutputs, NumbersOfSamplesThatDoNotFitAreRefused) {
  on_ranks(pipeline_ranks(1, 1), [](Context& context) {
    const auto refusal = [&](const std::vector<std::int64_t>& samples) {
      auto model = five_layers();
      Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                        {.cache = for_all(kSamples)});
      auto batch = AllRows(2).of(pipeline.layout(), 0);
      batch.samples = samples;
      return error_of<InvalidArgument>([&] { pipeline.compute_gradients(batch); });
    };
    EXPECT_THAT(refusal({1}), HasSubstr("the numbers of 2 samples, from 0 to 39, found 1"));
    EXPECT_THAT(refusal({1, 40}), HasSubstr("found 2, 40 among them"));
  });
}

}  // namespace
}  // namespace bluefog::testing
