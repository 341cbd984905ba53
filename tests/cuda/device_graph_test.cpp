// Calls in CUDA graphs for real: each launch has the bits of the same calls on the CPU.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "benchmarks/driver_graph.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/cuda/ways.hpp"

namespace bluefog::testing {
namespace {

constexpr std::size_t kCount = 7001;
constexpr int kLaunches = 5;

/// A step of every call by NCCL. Each call begins with the values of `input` and leaves its result
/// in a part of `results` of its own, so that a call that did nothing would be seen.
class Step {
 public:
  explicit Step(Context& context)
      : context_(context),
        plan_(plan_of(context, topology::exponential(context.size()))),
        machines_(std::make_shared<const NeighborPlan>(
            topology::ring(context.machines().machine_count())
                .plan_for(context.machines().machine_of(context.rank())))) {}

  /// Elements of `results`.
  [[nodiscard]] std::size_t count() const {
    return kCount * (6 + static_cast<std::size_t>(context_.size()) + plan_->sources.size());
  }

  /// Runs on the GPU or on the CPU, as the buffers and `copy(to, from)` are.
  template <typename Copy>
  void run(const BufferView& input, const BufferView& results, const Copy& copy) const {
    std::size_t begun = 0;
    const auto part = [&](std::size_t copies) {
      BufferView view = results;
      view.data = static_cast<std::byte*>(results.data) + begun * kCount * size_of(results.dtype);
      view.count = static_cast<std::int64_t>(copies * kCount);
      begun += copies;
      return view;
    };
    const auto part_with_input = [&] {
      BufferView view = part(1);
      copy(view, input);
      return view;
    };
    ops::neighbor_allreduce(context_, part_with_input(), plan_);
    const BufferView held = part_with_input();
    const Work work = ops::neighbor_allreduce_nonblocking(context_, held, plan_,
                                                          {.completion = ops::Completion::OnWait});
    copy(part(1), held);
    work.wait();
    ops::allreduce(context_, part_with_input(), {.reduction = ops::Reduction::Average});
    ops::broadcast(context_, part_with_input(), context_.size() - 1);
    ops::hierarchical_neighbor_allreduce(context_, part_with_input(), machines_);
    const BufferView everyones = part(static_cast<std::size_t>(context_.size()));
    ops::allgather(context_, input, [&](const auto& /*counts*/) { return everyones; });
    const BufferView neighbors = part(plan_->sources.size());
    ops::neighbor_allgather(
        context_, input, [&](const auto& /*counts*/) { return neighbors; }, plan_);
  }

 private:
  Context& context_;
  Plan plan_;
  Plan machines_;
};

class DeviceGraph : public OverWays {};
BF_OVER_WAYS(DeviceGraph);

/// The input is another one for each launch, written on the stream before it, and no host waits in
/// between. One step among them runs without a graph.
TEST_P(DeviceGraph, EachLaunchHasTheBitsOfTheCpu) {
  if (GetParam() != DeviceWay::Nccl) {
    GTEST_SKIP() << "only calls by NCCL may be captured";
  }
  on_gpus({.nodes_per_machine = 1}, [](Rank& rank) {
    const Step step(rank.context);
    const auto copy = [&](const BufferView& to, const BufferView& from) {
      rank.gpu.copy(to, from);
    };
    for (const Dtype dtype : {Dtype::Float16, Dtype::Float32}) {
      std::vector<Values> inputs;
      std::vector<BufferView> uploaded;
      std::vector<BufferView> found;
      for (int k = 0; k < kLaunches; ++k) {
        inputs.push_back(thirds(dtype, kCount, rank.context.rank() + 7 * k));
        uploaded.push_back(rank.gpu.upload(inputs.back()));
        found.push_back(rank.gpu.upload(Values(dtype, step.count())));
      }
      const BufferView input = rank.gpu.upload(Values(dtype, kCount));
      const BufferView results = rank.gpu.upload(Values(dtype, step.count()));
      step.run(input, results, copy);  // connects the ranks
      rank.gpu.synchronize();
      meet(rank.context);
      DriverGraph graph(rank.gpu.stream(), [&] { step.run(input, results, copy); });
      meet(rank.context);
      for (std::size_t k = 0; k < uploaded.size(); ++k) {
        copy(input, uploaded[k]);
        if (k == 2) {
          step.run(input, results, copy);
        } else {
          graph.launch(rank.gpu.stream());
        }
        copy(found[k], results);
      }
      rank.gpu.synchronize();
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        Values expected(dtype, step.count());
        step.run(inputs[k].view(), expected.view(),
                 [](const BufferView& to, const BufferView& from) {
                   std::memcpy(to.data, from.data, to.bytes());
                 });
        ASSERT_EQ(rank.gpu.download(found[k]), expected) << name_of(dtype) << ", launch " << k;
      }
      ops::barrier(rank.context);  // the graph ends when all have launched it
    }
  });
}

TEST_P(DeviceGraph, OtherWaysAreRefused) {
  if (GetParam() == DeviceWay::Nccl) {
    GTEST_SKIP() << "calls by NCCL may be captured";
  }
  on_gpus([](Rank& rank) {
    const Values input = thirds(Dtype::Float32, kCount, rank.context.rank());
    const BufferView own = rank.gpu.upload(input);
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    meet(rank.context);
    {
      DriverGraph graph(rank.gpu.stream(), [&] {
        EXPECT_THROW(ops::neighbor_allreduce(rank.context, own, plan), UnsupportedError);
      });
      meet(rank.context);
      graph.launch(rank.gpu.stream());
    }
    ASSERT_EQ(rank.gpu.download(own), input);
    expect_device_usable(rank);
  });
}

}  // namespace
}  // namespace bluefog::testing
