// Calls on real GPUs give the bits of the same calls on the CPU: by NCCL where it serves, by copies
// between devices, and through the host.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/one_sided/one_sided.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "ops/window.hpp"
#include "tests/cuda/ways.hpp"

namespace bluefog::testing {
namespace {

/// Counts that are short, several chunks long, and several pieces of a copy long.
constexpr std::size_t kCounts[] = {0, 1, 1003, 700'001};

class DeviceCalls : public OverWays {};
BF_OVER_WAYS(DeviceCalls);

TEST_P(DeviceCalls, NeighborAllreduce) {
  on_gpus([](Rank& rank) {
    const gpu::StreamHandle other = rank.gpu.make_stream();
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : kCounts) {
        const int n = rank.context.size();
        for (const Plan& plan : {plan_of(rank.context, topology::exponential(n)),
                                 plan_of(rank.context, topology::star(n))}) {
          const Values input = thirds(dtype, count, rank.context.rank());
          Values expected = input;
          ops::neighbor_allreduce(rank.context, expected.view(), plan);
          const BufferView own = rank.gpu.upload(input);
          BufferView output = rank.gpu.upload(Values(dtype, count));
          output.stream = other;
          ops::neighbor_allreduce(rank.context, own, output, plan);
          ASSERT_EQ(rank.gpu.download(output), expected) << name_of(dtype) << "[" << count << "]";
          ops::neighbor_allreduce(rank.context, own, plan);
          ASSERT_EQ(rank.gpu.download(own), expected) << name_of(dtype) << "[" << count << "]";
        }
      }
    }
  });
}

/// Each call begins with values that differ between ranks.
TEST_P(DeviceCalls, Collectives) {
  on_gpus([](Rank& rank) {
    for (const std::size_t count : kCounts) {
      const auto expect_like_the_cpu = [&](const char* name, int seed, const auto& call) {
        Values expected = thirds(Dtype::Float32, count, rank.context.rank() + seed);
        const BufferView own = rank.gpu.upload(expected);
        call(own);
        call(expected.view());
        ASSERT_EQ(rank.gpu.download(own), expected) << name << ", " << count;
      };
      expect_like_the_cpu("average", 0,
                          [&](const BufferView& buffer) { ops::allreduce(rank.context, buffer); });
      expect_like_the_cpu("sum", 20, [&](const BufferView& buffer) {
        ops::allreduce(rank.context, buffer, {.reduction = ops::Reduction::Sum});
      });
      for (const int root : {0, rank.context.size() - 1}) {
        expect_like_the_cpu("broadcast", 40 + 20 * root, [&](const BufferView& buffer) {
          ops::broadcast(rank.context, buffer, root);
        });
      }
    }
  });
}

/// Compares a gather on the GPU with that on the CPU, with counts that differ between ranks.
template <typename Call>
void expect_gathered_alike(Rank& rank, std::size_t count, const Call& call) {
  const int own = rank.context.rank();
  const std::size_t own_count = own == 1 ? count / 2 : count + static_cast<std::size_t>(own);
  for (const Dtype dtype : {Dtype::Int32, Dtype::BFloat16}) {
    Values part = small_integers(dtype, own_count, own);
    Values expected(dtype, std::size_t{0});
    call(part.view(), [&](const std::vector<std::int64_t>& counts) {
      expected = Values(dtype, static_cast<std::size_t>(
                                   std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
      return expected.view();
    });
    const BufferView on_gpu = rank.gpu.upload(part);
    BufferView all = on_gpu;
    call(on_gpu, [&](const std::vector<std::int64_t>& counts) {
      all.count = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      all.data = rank.gpu.allocate(all.bytes());
      return all;
    });
    ASSERT_EQ(rank.gpu.download(all), expected) << name_of(dtype) << "[" << own_count << "]";
  }
}

TEST_P(DeviceCalls, Allgather) {
  on_gpus([](Rank& rank) {
    for (const std::size_t count : kCounts) {
      expect_gathered_alike(rank, count, [&](const BufferView& part, const auto& room) {
        ops::allgather(rank.context, part, room);
      });
    }
  });
}

TEST_P(DeviceCalls, NeighborAllgather) {
  on_gpus([](Rank& rank) {
    const int n = rank.context.size();
    for (const Plan& plan : {plan_of(rank.context, topology::exponential(n)),
                             plan_of(rank.context, topology::star(n))}) {
      for (const std::size_t count : kCounts) {
        expect_gathered_alike(rank, count, [&](const BufferView& part, const auto& room) {
          ops::neighbor_allgather(rank.context, part, room, plan);
        });
      }
    }
  });
}

void expect_hierarchical_like_the_cpu(Rank& rank) {
  const MachineLayout& machines = rank.context.machines();
  ASSERT_GT(machines.machine_count(), 1);
  const auto plan = std::make_shared<const NeighborPlan>(
      topology::ring(machines.machine_count()).plan_for(machines.machine_of(rank.context.rank())));
  for (const std::size_t count : kCounts) {
    Values expected = thirds(Dtype::Float32, count, rank.context.rank());
    const BufferView own = rank.gpu.upload(expected);
    ops::hierarchical_neighbor_allreduce(rank.context, own, plan);
    ops::hierarchical_neighbor_allreduce(rank.context, expected.view(), plan);
    ASSERT_EQ(rank.gpu.download(own), expected) << count;

    Values of_machine = thirds(Dtype::Float32, count, rank.context.rank() + 20);
    const BufferView on_gpu = rank.gpu.upload(of_machine);
    ops::allreduce(rank.context, on_gpu, {.scope = ops::Scope::Machine});
    ops::allreduce(rank.context, of_machine.view(), {.scope = ops::Scope::Machine});
    ASSERT_EQ(rank.gpu.download(on_gpu), of_machine) << count;
  }
}

TEST_P(DeviceCalls, HierarchicalOfMachinesOfOneRank) {
  on_gpus({.at_least = 2, .nodes_per_machine = 1}, expect_hierarchical_like_the_cpu);
}

TEST_P(DeviceCalls, HierarchicalOfMachinesOfTwoRanks) {
  on_gpus({.at_least = 4, .nodes_per_machine = 2}, expect_hierarchical_like_the_cpu);
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
        if (rank.context.core().device()->way_of(OpKind::Allreduce) == DeviceWay::Peer) {
          EXPECT_EQ(rank.context.core().one_sided().peer_obstacle(), "");
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

}  // namespace
}  // namespace bluefog::testing
