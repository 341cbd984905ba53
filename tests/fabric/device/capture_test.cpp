// Calls on devices that are captured in CUDA graphs, over the stand-ins: each replay has the bits
// of the same calls made once more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/plans.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using Graph = std::shared_ptr<CapturedGraph>;

constexpr gpu::CaptureMode kModes[] = {gpu::CaptureMode::Global, gpu::CaptureMode::ThreadLocal,
                                       gpu::CaptureMode::Relaxed};

std::vector<Plan> plans_of(const Context& context) {
  const int n = context.size();
  const int rank = context.rank();
  std::vector<Plan> plans;
  for (const MixingMatrix& w :
       {topology::exponential(n), topology::star(n), MixingMatrix::identity(n)}) {
    plans.push_back(plan_of(context, w));
  }
  NeighborPlan directed = NeighborPlan::alone(rank, n);
  if (n > 1) {
    directed.self_weight = 0.6;
    directed.sources = {{(rank + n - 1) % n, 0.7}};
    directed.destinations = {{(rank + 1) % n, 0.3 + rank}};
  }
  plans.push_back(std::make_shared<const NeighborPlan>(directed));
  return plans;
}

void neighbor_allreduce_k_times(DeviceRank& rank, const Plan& plan, Dtype dtype,
                                std::size_t count) {
  const Values input = thirds(dtype, count, rank.context.rank());
  Values expected = input;
  const BufferView own = rank.upload(input);
  const BufferView output = rank.upload(Values(dtype, count));
  for (const gpu::CaptureMode mode : kModes) {
    const Graph graph = rank.capture(
        [&] {
          ops::neighbor_allreduce(rank.context, own, output, plan);
          ops::neighbor_allreduce(rank.context, own, plan, {.check = ops::PlanCheck::Checked});
        },
        mode);
    ASSERT_EQ(graph->count_of("nccl group"),
              (plan->sources.empty() && plan->destinations.empty()) || count == 0 ? 0 : 2);
    for (int k = 0; k < 3; ++k) {
      rank.cuda.replay(graph, rank.stream);
      ops::neighbor_allreduce(rank.context, expected.view(), plan);
    }
    ASSERT_EQ(rank.download(own), expected) << name_of(dtype) << "[" << count << "]";
    ASSERT_EQ(rank.download(output), expected) << name_of(dtype) << "[" << count << "]";
  }
}

TEST(DeviceCapture, ReplaysHaveTheBitsOfCalls) {
  on_device_ranks({.at_most = 4}, [](DeviceRank& rank) {
    for (const Plan& plan : plans_of(rank.context)) {
      for (const Dtype dtype : kFloatingDtypes) {
        for (const std::size_t count : {0, 1, 1003}) {
          ASSERT_NO_FATAL_FAILURE(neighbor_allreduce_k_times(rank, plan, dtype, count));
        }
      }
    }
  });
}

/// A capture only records: nothing runs before the first replay.
TEST(DeviceCapture, NothingRunsInACapture) {
  on_device_ranks({.at_most = 4}, [](DeviceRank& rank) {
    const Values input = thirds(Dtype::Float32, 100, rank.context.rank());
    const BufferView own = rank.upload(input);
    const Plan plan = ring(rank.context);
    const int groups = rank.cuda.counts()["nccl group"];
    const Graph graph = rank.capture([&] {
      ops::neighbor_allreduce(rank.context, own, plan);
      ops::allreduce(rank.context, own);
    });
    EXPECT_EQ(rank.cuda.counts()["nccl group"], groups);
    EXPECT_EQ(rank.download(own), input);
  });
}

/// A step that uses each call, and what it makes of the same on the CPU.
struct Step {
  DeviceRank& rank;
  Plan plan;
  Plan machine_plan;
  BufferView values;
  BufferView everyones;
  BufferView neighbors;

  Step(DeviceRank& own, const Values& start)
      : rank(own),
        plan(plan_of(own.context, topology::exponential(own.context.size()))),
        machine_plan(std::make_shared<const NeighborPlan>(
            topology::ring(own.context.machines().machine_count())
                .plan_for(own.context.machines().machine_of(own.context.rank())))),
        values(own.upload(start)),
        everyones(own.upload(Values(start.dtype(), start.count() * own.context.size()))),
        neighbors(own.upload(Values(start.dtype(), start.count() * plan->sources.size()))) {}

  void on_device() const {
    Context& context = rank.context;
    ops::neighbor_allreduce(context, values, plan);
    ops::allreduce(context, values, {.reduction = ops::Reduction::Average});
    ops::allgather(context, values, [&](const auto& /*counts*/) { return everyones; });
    ops::neighbor_allgather(
        context, values, [&](const auto& /*counts*/) { return neighbors; }, plan);
    ops::hierarchical_neighbor_allreduce(context, values, machine_plan);
    ops::allreduce(context, values, {.scope = ops::Scope::Machine});
    ops::broadcast(context, values, context.size() - 1);
  }

  void on_cpu(Values& own, Values& all, Values& some) const {
    Context& context = rank.context;
    ops::neighbor_allreduce(context, own.view(), plan);
    ops::allreduce(context, own.view(), {.reduction = ops::Reduction::Average});
    ops::allgather(context, own.view(), [&](const auto& /*counts*/) { return all.view(); });
    ops::neighbor_allgather(
        context, own.view(), [&](const auto& /*counts*/) { return some.view(); }, plan);
    ops::hierarchical_neighbor_allreduce(context, own.view(), machine_plan);
    ops::allreduce(context, own.view(), {.scope = ops::Scope::Machine});
    ops::broadcast(context, own.view(), context.size() - 1);
  }
};

TEST(DeviceCapture, EveryCallByNccl) {
  on_device_ranks({.at_most = 4, .layouts = {Layout::OneHost, Layout::TwoHosts}},
                  [](DeviceRank& rank) {
                    const auto& machines = rank.context.machines();
                    for (int m = 0; m < machines.machine_count(); ++m) {
                      if (machines.ranks_of(m).size() != machines.ranks_of(0).size()) {
                        return;  // such calls go through the host
                      }
                    }
                    for (const Dtype dtype : {Dtype::Float16, Dtype::Float32}) {
                      Values own = thirds(dtype, 301, rank.context.rank());
                      const Step step(rank, own);
                      Values all(dtype, static_cast<std::size_t>(step.everyones.count));
                      Values some(dtype, static_cast<std::size_t>(step.neighbors.count));
                      const Graph graph = rank.capture([&] { step.on_device(); });
                      for (int k = 0; k < 3; ++k) {
                        rank.cuda.replay(graph, rank.stream);
                        step.on_cpu(own, all, some);
                      }
                      ASSERT_EQ(rank.download(step.values), own) << name_of(dtype);
                      ASSERT_EQ(rank.download(step.everyones), all) << name_of(dtype);
                      ASSERT_EQ(rank.download(step.neighbors), some) << name_of(dtype);
                    }
                  });
}

/// A user's kernel: doubles the values.
void twice(DeviceRank& rank, const BufferView& buffer) {
  rank.cuda.enqueue(buffer.stream, "twice", {{buffer.data, buffer.bytes(), true}}, [buffer] {
    auto* const values = static_cast<float*>(buffer.data);
    for (std::int64_t k = 0; k < buffer.count; ++k) {
      values[k] *= 2;
    }
  });
}

/// Among the user's own kernels, on streams that the user forks.
TEST(DeviceCapture, AmongOtherWorkAndOnSeveralStreams) {
  on_device_ranks({.at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = ring(rank.context);
    Values first = thirds(Dtype::Float32, 700, rank.context.rank());
    Values second = thirds(Dtype::Float32, 33, rank.context.rank());
    const gpu::StreamHandle side = rank.cuda.make_stream();
    const BufferView on_main = rank.upload(first);
    BufferView on_side = rank.upload(second);
    on_side.stream = side;
    const gpu::EventHandle fork = rank.cuda.make_event();
    const gpu::EventHandle join = rank.cuda.make_event();
    const Graph graph = rank.capture([&] {
      rank.cuda.record(fork, rank.stream);
      rank.cuda.wait(side, fork);
      twice(rank, on_main);
      twice(rank, on_side);
      const Work of_main = ops::neighbor_allreduce_nonblocking(rank.context, on_main, plan);
      const Work of_side = ops::neighbor_allreduce_nonblocking(rank.context, on_side, plan);
      EXPECT_TRUE(of_main.done());
      of_side.wait();
      of_main.wait();
      twice(rank, on_main);
      twice(rank, on_side);
      rank.cuda.record(join, side);
      rank.cuda.wait(rank.stream, join);
    });
    for (int k = 0; k < 3; ++k) {
      rank.cuda.replay(graph, rank.stream);
      for (Values* const values : {&first, &second}) {
        for (int times = 0; times < 2; ++times) {
          for (std::size_t i = 0; i < values->count(); ++i) {
            values->set(i, 2 * (*values)[i]);
          }
          if (times == 0) {
            ops::neighbor_allreduce(rank.context, values->view(), plan);
          }
        }
      }
    }
    ASSERT_EQ(rank.download(on_main), first);
    BufferView joined = on_side;
    joined.stream = rank.stream;
    ASSERT_EQ(rank.download(joined), second);
  });
}

/// The result of such a call comes after what is on the stream at the `wait`.
TEST(DeviceCapture, ResultsThatAreHeldBack) {
  on_device_ranks({.at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    Values values = thirds(Dtype::Float32, 501, rank.context.rank());
    const BufferView own = rank.upload(values);
    const BufferView other = rank.upload(values);
    const BufferView read = rank.upload(Values(Dtype::Float32, 501));
    const ops::NeighborAllreduceOptions on_wait{.completion = ops::Completion::OnWait};
    const Graph graph = rank.capture([&] {
      const Work of_own = ops::neighbor_allreduce_nonblocking(rank.context, own, plan, on_wait);
      const Work of_other = ops::neighbor_allreduce_nonblocking(rank.context, other, plan, on_wait);
      rank.cuda.copy(read.data, own.data, own.bytes(), rank.stream);
      of_other.wait();
      of_own.wait();
    });
    Values before = values;
    for (int k = 0; k < 3; ++k) {
      before = values;
      rank.cuda.replay(graph, rank.stream);
      ops::neighbor_allreduce(rank.context, values.view(), plan);
    }
    ASSERT_EQ(rank.download(own), values);
    ASSERT_EQ(rank.download(other), values);
    ASSERT_EQ(rank.download(read), before);
  });
}

/// In the order of the stream: replays of two graphs, calls that run, and some that are under way
/// on another stream meanwhile.
TEST(DeviceCapture, TwoGraphsAndCallsBetween) {
  on_device_ranks({.at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    Values values = thirds(Dtype::Float32, 901, rank.context.rank());
    const BufferView own = rank.upload(values);
    const auto call = [&] { ops::neighbor_allreduce(rank.context, own, plan); };
    const Graph average = rank.capture(call);
    const Graph sum = rank.capture([&] {
      ops::allreduce(rank.context, own, {.reduction = ops::Reduction::Average});
      call();
    });
    for (int k = 0; k < 3; ++k) {
      rank.cuda.replay(average, rank.stream);
      rank.cuda.replay(sum, rank.stream);
      call();
      rank.cuda.replay(average, rank.stream);
      ops::neighbor_allreduce(rank.context, values.view(), plan);
      ops::allreduce(rank.context, values.view(), {.reduction = ops::Reduction::Average});
      for (int times = 0; times < 3; ++times) {
        ops::neighbor_allreduce(rank.context, values.view(), plan);
      }
    }
    ASSERT_EQ(rank.download(own), values);
  });
}

/// Two captures of one thread that overlap.
TEST(DeviceCapture, TwoCapturesAtOnce) {
  on_device_ranks({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = ring(rank.context);
    Values values = thirds(Dtype::Float32, 90, rank.context.rank());
    const BufferView own = rank.upload(values);
    BufferView on_side = own;
    on_side.stream = rank.cuda.make_stream();
    Graph inner;
    const Graph outer = rank.capture([&] {
      ops::neighbor_allreduce(rank.context, own, plan);
      rank.cuda.begin_capture(on_side.stream);
      ops::neighbor_allreduce(rank.context, on_side, plan);
      ops::allreduce(rank.context, own);
      ops::neighbor_allreduce(rank.context, on_side, plan);
      inner = rank.cuda.end_capture(on_side.stream);
    });
    EXPECT_EQ(outer->count_of("nccl group"), 2);
    EXPECT_EQ(inner->count_of("nccl group"), 2);
    for (int k = 0; k < 2; ++k) {
      rank.cuda.replay(outer, rank.stream);
      rank.cuda.replay(inner, rank.stream);
      ops::neighbor_allreduce(rank.context, values.view(), plan);
      ops::allreduce(rank.context, values.view());
      ops::neighbor_allreduce(rank.context, values.view(), plan);
      ops::neighbor_allreduce(rank.context, values.view(), plan);
    }
    ASSERT_EQ(rank.download(own), values);
  });
}

/// Calls that run are looked after by the engine's thread while another thread captures in the mode
/// that forbids such looks, and go on.
TEST(DeviceCapture, WhileCallsRun) {
  on_device_ranks({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = ring(rank.context);
    Values running = thirds(Dtype::Float32, 100, rank.context.rank());
    Values values = thirds(Dtype::Float32, 200, rank.context.rank());
    const BufferView other = rank.upload(running, rank.cuda.make_stream());
    const BufferView own = rank.upload(values);
    rank.shut(other.stream);
    const Work work = ops::neighbor_allreduce_nonblocking(rank.context, other, plan);
    meet(rank.context);
    Work later;
    const Graph graph = rank.capture([&] {
      const int looks = rank.cuda.counts()["cuEventQuery"];
      while (rank.cuda.counts()["cuEventQuery"] < looks + 5) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ops::neighbor_allreduce(rank.context, own, plan);
      later = ops::neighbor_allreduce_nonblocking(rank.context, other, plan);
      ops::neighbor_allreduce(rank.context, own, plan);
    });
    rank.open();
    work.synchronize();
    later.synchronize();
    rank.cuda.replay(graph, rank.stream);
    for (Values* const twice_averaged : {&running, &values}) {
      ops::neighbor_allreduce(rank.context, twice_averaged->view(), plan);
      ops::neighbor_allreduce(rank.context, twice_averaged->view(), plan);
    }
    ASSERT_EQ(rank.download(own), values);
    ASSERT_EQ(rank.download(other), running);
  });
}

/// Graphs of one context share memory, which is there from the largest on; calls that run have
/// their own.
TEST(DeviceCapture, MemoryIsTakenOnce) {
  on_device_ranks({.at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = ring(rank.context);
    const BufferView own = rank.upload(thirds(Dtype::Float32, 3000, rank.context.rank()));
    std::vector<Work> held;
    const auto step = [&] {
      for (int i = 0; i < 5; ++i) {
        ops::neighbor_allreduce(rank.context, own, plan);
        held.push_back(ops::neighbor_allreduce_nonblocking(
            rank.context, own, plan, {.completion = ops::Completion::OnWait}));
        held.back().wait();
      }
    };
    std::vector<Graph> graphs;
    const auto allocations_after = [&](int captures) {
      meet(rank.context);
      for (int i = 0; i < captures; ++i) {
        graphs.push_back(rank.capture(step));
      }
      const int allocations = rank.cuda.counts()["cuMemAlloc"];
      meet(rank.context);
      return allocations;
    };
    const int before = allocations_after(0);
    const int at_first = allocations_after(1);
    EXPECT_EQ(at_first - before, rank.context.size() == 1 ? 0 : 2 * rank.context.size());
    EXPECT_EQ(allocations_after(9), at_first);
    for (const Graph& graph : graphs) {
      rank.cuda.replay(graph, rank.stream);
    }
    rank.cuda.synchronize(rank.stream);
  });
}

}  // namespace
}  // namespace bluefog::testing
