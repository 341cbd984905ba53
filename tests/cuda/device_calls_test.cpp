// Calls on GPUs for real: the bits of the same calls on the CPU, by NCCL where it serves, by copies
// between devices and through the host. Ranks share GPUs where there are fewer than ranks.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "benchmarks/driver_graph.hpp"
#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/nccl/device_channel.hpp"
#include "bluefog_cpp/transport/one_sided/one_sided.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "ops/window.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/support/ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using Plan = std::shared_ptr<const NeighborPlan>;

/// Short, several chunks long, and several pieces of a copy long.
constexpr std::size_t kCounts[] = {0, 1, 1003, 700'001};

Plan plan_of(const Context& context, const MixingMatrix& w) {
  return std::make_shared<const NeighborPlan>(w.plan_for(context.rank()));
}

struct Rank {
  Context& context;
  Gpu gpu;
};

class DeviceCalls : public ::testing::TestWithParam<DeviceWay> {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) {
      GTEST_SKIP() << why_no_gpu();
    }
  }

  /// As every rank; from device to device only where that way serves.
  void on_gpus(const std::function<void(Rank&)>& body) {
    const auto way = GetParam();
    const Ranks ranks{.at_most = 4,
                      .layouts = {Layout::OneHost},
                      .settings = [way](Settings& settings, int /*rank*/) {
                        settings.device_way = way == DeviceWay::Nccl   ? DeviceWayChoice::Nccl
                                              : way == DeviceWay::Peer ? DeviceWayChoice::Peer
                                                                       : DeviceWayChoice::Host;
                        settings.timeout = std::chrono::seconds(60);
                      }};
    on_ranks(ranks, [&](Context& context) {
      Rank rank{.context = context, .gpu = Gpu(context.rank())};
      context.use_device(rank.gpu.device());
      if (context.device()->way_of(OpKind::Allreduce) != way) {
        was_refused_ = true;
        return;
      }
      body(rank);
    });
    if (was_refused_) {
      GTEST_SKIP() << "the way does not serve these ranks: the log says why";
    }
  }

 private:
  std::atomic<bool> was_refused_{false};
};

TEST_P(DeviceCalls, NeighborAllreduce) {
  on_gpus([](Rank& rank) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : kCounts) {
        const int n = rank.context.size();
        for (const Plan& plan : {plan_of(rank.context, topology::exponential(n)),
                                 plan_of(rank.context, topology::star(n))}) {
          const Values input = thirds(dtype, count, rank.context.rank());
          Values expected = input;
          ops::neighbor_allreduce(rank.context, expected.view(), plan);
          const BufferView own = rank.gpu.upload(input);
          const BufferView output = rank.gpu.upload(Values(dtype, count));
          ops::neighbor_allreduce(rank.context, own, output, plan);
          ASSERT_EQ(rank.gpu.download(output), expected) << name_of(dtype) << "[" << count << "]";
          ops::neighbor_allreduce(rank.context, own, plan);
          ASSERT_EQ(rank.gpu.download(own), expected) << name_of(dtype) << "[" << count << "]";
        }
      }
    }
  });
}

TEST_P(DeviceCalls, NeighborAllreduceOnWait) {
  on_gpus([](Rank& rank) {
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    Values expected = thirds(Dtype::Float32, 700'001, rank.context.rank());
    const BufferView own = rank.gpu.upload(expected);
    ops::neighbor_allreduce(rank.context, expected.view(), plan);
    const Work work = ops::neighbor_allreduce_nonblocking(rank.context, own, plan,
                                                          {.completion = ops::Completion::OnWait});
    work.wait();
    ASSERT_EQ(rank.gpu.download(own), expected);
  });
}

TEST_P(DeviceCalls, Collectives) {
  on_gpus([](Rank& rank) {
    for (const std::size_t count : kCounts) {
      Values expected = thirds(Dtype::Float32, count, rank.context.rank());
      const BufferView own = rank.gpu.upload(expected);
      ops::allreduce(rank.context, own);
      ops::allreduce(rank.context, expected.view());
      ASSERT_EQ(rank.gpu.download(own), expected) << count;
      ops::broadcast(rank.context, own, rank.context.size() - 1);
      ASSERT_EQ(rank.gpu.download(own), expected) << count;

      std::vector<double> everyone;
      for (int r = 0; r < rank.context.size(); ++r) {
        const auto part = small_integers(Dtype::Int32, count, r).to_doubles();
        everyone.insert(everyone.end(), part.begin(), part.end());
      }
      BufferView all;
      const BufferView part =
          rank.gpu.upload(small_integers(Dtype::Int32, count, rank.context.rank()));
      ops::allgather(rank.context, part, [&](const std::vector<std::int64_t>& counts) {
        const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        all = part;
        all.count = total;
        all.data = rank.gpu.allocate(all.bytes());
        return all;
      });
      ASSERT_EQ(rank.gpu.download(all).to_doubles(), everyone) << count;
    }
  });
}

TEST_P(DeviceCalls, Hierarchical) {
  on_gpus([](Rank& rank) {
    const MachineLayout& machines = rank.context.machines();
    const auto plan = std::make_shared<const NeighborPlan>(
        topology::ring(machines.machine_count())
            .plan_for(machines.machine_of(rank.context.rank())));
    Values expected = thirds(Dtype::Float32, 7001, rank.context.rank());
    const BufferView own = rank.gpu.upload(expected);
    ops::hierarchical_neighbor_allreduce(rank.context, own, plan);
    ops::hierarchical_neighbor_allreduce(rank.context, expected.view(), plan);
    ASSERT_EQ(rank.gpu.download(own), expected);
  });
}

/// A step of several calls by NCCL, whose bits each launch of the graph has; other ways are refused.
TEST_P(DeviceCalls, InACudaGraph) {
  const auto way = GetParam();
  on_gpus([way](Rank& rank) {
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    for (const Dtype dtype : {Dtype::Float16, Dtype::Float32}) {
      Values expected = thirds(dtype, 7001, rank.context.rank());
      const BufferView own = rank.gpu.upload(expected);
      const auto step = [&](const BufferView& buffer) {
        ops::neighbor_allreduce(rank.context, buffer, plan);
        ops::allreduce(rank.context, buffer, {.reduction = ops::Reduction::Average});
        ops::neighbor_allreduce_nonblocking(rank.context, buffer, plan,
                                            {.completion = ops::Completion::OnWait})
            .wait();
        ops::broadcast(rank.context, buffer, rank.context.size() - 1);
      };
      step(own);  // connects the ranks
      step(expected.view());
      rank.gpu.synchronize();
      if (way != DeviceWay::Nccl) {
        DriverGraph graph(rank.gpu.stream(), [&] { EXPECT_THROW(step(own), UnsupportedError); });
      } else {
        DriverGraph graph(rank.gpu.stream(), [&] { step(own); });
        for (int k = 0; k < 3; ++k) {
          graph.launch(rank.gpu.stream());
          step(expected.view());
        }
        step(own);
        step(expected.view());
        graph.launch(rank.gpu.stream());
        step(expected.view());
        rank.gpu.synchronize();
      }
      ASSERT_EQ(rank.gpu.download(own), expected) << name_of(dtype);
      ops::barrier(rank.context);
    }
  });
}

TEST_P(DeviceCalls, PairGossip) {
  on_gpus([](Rank& rank) {
    const int target = rank.context.rank() ^ 1;
    if (target >= rank.context.size()) {
      return;
    }
    Values expected = thirds(Dtype::Float32, 700'001, rank.context.rank());
    const BufferView own = rank.gpu.upload(expected);
    ops::pair_gossip(rank.context, own, target);
    ops::pair_gossip(rank.context, expected.view(), target);
    ASSERT_EQ(rank.gpu.download(own), expected);
  });
}

TEST_P(DeviceCalls, Windows) {
  on_gpus([](Rank& rank) {
    const NeighborPlan plan =
        topology::exponential(rank.context.size()).plan_for(rank.context.rank());
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : kCounts) {
        Values expected = thirds(dtype, count, rank.context.rank());
        const BufferView own = rank.gpu.upload(expected);
        const auto on_gpu = ops::Window::create(rank.context, own, plan);
        if (rank.context.device()->way_of(OpKind::Allreduce) == DeviceWay::Peer) {
          EXPECT_EQ(rank.context.one_sided().peer_obstacle(), "");
        }
        const auto on_cpu = ops::Window::create(rank.context, expected.view(), plan);
        const auto expect_alike = [&](const char* call) {
          ASSERT_EQ(rank.gpu.download(own), expected)
              << call << ", " << name_of(dtype) << "[" << count << "]";
          ops::barrier(rank.context);
        };
        on_gpu->put(own, {.self_weight = 0.5});
        on_cpu->put(expected.view(), {.self_weight = 0.5});
        expect_alike("put");
        on_gpu->update();
        on_cpu->update();
        expect_alike("update");
        on_gpu->accumulate_nonblocking(own, {.self_weight = 0.25}).wait();
        on_cpu->accumulate(expected.view(), {.self_weight = 0.25});
        expect_alike("accumulate");
        on_gpu->update_then_collect();
        on_cpu->update_then_collect();
        expect_alike("update_then_collect");
        on_gpu->get();
        on_cpu->get();
        ops::barrier(rank.context);
        on_gpu->update();
        on_cpu->update();
        expect_alike("get");
        on_gpu->free();
        on_cpu->free();
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceCalls,
                         ::testing::Values(DeviceWay::Nccl, DeviceWay::Peer, DeviceWay::Host),
                         [](const auto& parameter) {
                           return parameter.param == DeviceWay::Nccl   ? "Nccl"
                                  : parameter.param == DeviceWay::Peer ? "Peer"
                                                                       : "Host";
                         });

}  // namespace
}  // namespace bluefog::testing
