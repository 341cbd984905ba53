// Calls with buffers on a device that go through the host's memory, over the stand-in of CUDA.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/plans.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

/// Longer than two pieces of a copy, and no multiple of them.
constexpr std::size_t kSeveralPieces = 600'001;

/// Room for what ranks gather, as a caller's allocator makes it: in the order of the stream.
ops::AllocateGathered room_for(DeviceRank& rank, const BufferView& like, BufferView& all) {
  return [&rank, &all, like](const std::vector<std::int64_t>& counts) {
    const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    all = {.data = rank.cuda.allocate(static_cast<std::size_t>(total) * size_of(like.dtype)),
           .count = total,
           .dtype = like.dtype,
           .device = like.device,
           .stream = like.stream};
    return all;
  };
}

/// NCCL is there, and none of it is used if calls are staged.
void neighbor_allreduce_like_the_cpu(DeviceRank& rank, Dtype dtype, std::size_t count) {
  Context& context = rank.context;
  const int n = context.size();
  NeighborPlan directed = NeighborPlan::alone(context.rank(), n);
  if (n > 1) {
    directed.self_weight = 0.6;
    directed.sources = {{(context.rank() + n - 1) % n, 0.7}};
    directed.destinations = {{(context.rank() + 1) % n, 0.3 + context.rank()}};
  }
  for (const Plan& plan :
       {plan_of(context, topology::exponential(n)), plan_of(context, topology::star(n)),
        plan_of(context, MixingMatrix::identity(n)), share(directed)}) {
    const Values input = thirds(dtype, count, context.rank());
    Values expected = input;
    ops::neighbor_allreduce(context, expected.view(), plan);
    const BufferView own = rank.upload(input);
    const BufferView output = rank.upload(Values(dtype, count), rank.cuda.make_stream());
    ops::neighbor_allreduce(context, own, output, plan);
    ASSERT_EQ(rank.download(output), expected) << name_of(dtype) << "[" << count << "]";
    ASSERT_EQ(rank.download(own), input);
    ops::neighbor_allreduce(context, own, plan, {.check = ops::PlanCheck::Checked});
    ASSERT_EQ(rank.download(own), expected) << name_of(dtype) << "[" << count << "], in place";
  }
}

TEST(StagedNeighborAllreduce, BitsOfTheCpu) {
  on_device_ranks(without_nccl(), [](DeviceRank& rank) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : {0, 1, 1003}) {
        neighbor_allreduce_like_the_cpu(rank, dtype, count);
      }
    }
    EXPECT_EQ(rank.cuda.counts()["nccl group"], 0);
  });
}

TEST(StagedNeighborAllreduce, InSeveralPieces) {
  DeviceRanks ranks = without_nccl();
  ranks.at_most = few(4);
  ranks.layouts = {Layout::OneHost, Layout::TwoHosts};
  on_device_ranks(ranks, [](DeviceRank& rank) {
    neighbor_allreduce_like_the_cpu(rank, Dtype::Float32, kSeveralPieces);
  });
}

/// The first messages leave, and the first results go back, while the input's end has not come.
TEST(StagedNeighborAllreduce, CopiesAndMessagesOverlap) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = ranks.at_most = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const Plan plan = plan_of(rank.context, topology::ring(2));
    const Values input = thirds(Dtype::Float32, kSeveralPieces, rank.context.rank());
    Values expected = input;
    ops::neighbor_allreduce(rank.context, expected.view(), plan);
    const BufferView own = rank.upload(input);
    rank.cuda.synchronize(rank.stream);
    meet(rank.context);
    // Rank 1's last piece stands behind the gate.
    const int before = rank.cuda.counts()["cuMemcpyAsync"];
    meet(rank.context);
    if (rank.context.rank() == 1) {
      rank.shut_after(rank.context.core().device()->staging()->to_host(), 2);
    }
    const Work work = ops::neighbor_allreduce_nonblocking(rank.context, own, plan);
    // Three pieces of each rank to the host, and two of each back.
    while (rank.cuda.counts()["cuMemcpyAsync"] < before + 6 + 4) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(work.done());
    meet(rank.context);
    rank.open();
    work.wait();
    ASSERT_EQ(rank.download(own), expected);
  });
}

TEST(StagedNeighborAllreduce, OnWait) {
  for (const Reach reach : {Reach::Host, Reach::Nccl, Reach::PeerProcesses}) {
    on_device_ranks({.at_least = 2, .at_most = few(4), .reach = reach}, [](DeviceRank& rank) {
      const Plan plan = plan_of(rank.context, topology::ring(rank.context.size()));
      for (const std::size_t count : {std::size_t{7}, kSeveralPieces}) {
        const Values input = thirds(Dtype::Float32, count, rank.context.rank());
        Values expected = input;
        ops::neighbor_allreduce(rank.context, expected.view(), plan);
        const BufferView own = rank.upload(input);
        const Work work = ops::neighbor_allreduce_nonblocking(
            rank.context, own, plan, {.completion = ops::Completion::OnWait});
        ops::barrier(rank.context);
        ASSERT_EQ(rank.download(own), input);
        work.wait();
        ASSERT_EQ(rank.download(own), expected);
      }
    });
  }
}

TEST(StagedAllreduce, BitsOfTheCpu) {
  DeviceRanks ranks = without_nccl();
  ranks.layouts = {Layout::OneHost, Layout::TwoHosts};
  on_device_ranks(ranks, [](DeviceRank& rank) {
    for (const Dtype dtype : {Dtype::BFloat16, Dtype::Float64, Dtype::Int32}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{7001}}) {
        for (const auto scope : {ops::Scope::Global, ops::Scope::Machine}) {
          Values expected = is_floating(dtype) ? thirds(dtype, count, rank.context.rank())
                                               : small_integers(dtype, count, rank.context.rank());
          const BufferView own = rank.upload(expected);
          const ops::AllreduceOptions options{.reduction = ops::Reduction::Sum, .scope = scope};
          ops::allreduce(rank.context, own, options);
          ops::allreduce(rank.context, expected.view(), options);
          ASSERT_EQ(rank.download(own), expected) << name_of(dtype) << "[" << count << "]";
        }
      }
    }
  });
}

TEST(StagedBroadcast, AnyRootAndDtype) {
  DeviceRanks ranks = without_nccl();
  ranks.layouts = {Layout::OneHost, Layout::TwoHosts};
  on_device_ranks(ranks, [](DeviceRank& rank) {
    for (const Dtype dtype : kAllDtypes) {
      for (const int root : {0, rank.context.size() - 1}) {
        const BufferView own = rank.upload(small_integers(dtype, 777, rank.context.rank()));
        ops::broadcast(rank.context, own, root);
        ASSERT_EQ(rank.download(own), small_integers(dtype, 777, root)) << name_of(dtype);
      }
    }
  });
}

std::size_t count_of(int rank) { return static_cast<std::size_t>(rank == 1 ? 0 : 5 + 100 * rank); }

TEST(DeviceGathering, UnequalCountsEitherWay) {
  for (const Reach reach : {Reach::Host, Reach::Nccl, Reach::PeerProcesses}) {
    on_device_ranks({.reach = reach}, [&](DeviceRank& rank) {
      const Context& context = rank.context;
      const Plan ring = plan_of(context, topology::ring(context.size()));
      for (const Dtype dtype : {Dtype::Float32, Dtype::Bool, Dtype::Int64}) {
        const auto values_of = [&](int r) { return small_integers(dtype, count_of(r), r); };
        const BufferView own = rank.upload(values_of(context.rank()));
        std::vector<double> everyone;
        for (int r = 0; r < context.size(); ++r) {
          const auto part = values_of(r).to_doubles();
          everyone.insert(everyone.end(), part.begin(), part.end());
        }
        BufferView all;
        ops::allgather(rank.context, own, room_for(rank, own, all));
        ASSERT_EQ(rank.download(all).to_doubles(), everyone) << name_of(dtype);

        std::vector<double> neighbors;
        for (const WeightedRank& source : ring->sources) {
          const auto part = values_of(source.rank).to_doubles();
          neighbors.insert(neighbors.end(), part.begin(), part.end());
        }
        ops::neighbor_allgather(rank.context, own, room_for(rank, own, all), ring,
                                {.check = ops::PlanCheck::Checked});
        ASSERT_EQ(rank.download(all).to_doubles(), neighbors) << name_of(dtype);
      }
      EXPECT_EQ(rank.cuda.counts()["nccl group"] > 0, reach == Reach::Nccl && context.size() > 1);
    });
  }
}

/// Machines of one size go by NCCL, others through the host.
TEST(DeviceHierarchical, BitsOfTheCpuEitherWay) {
  for (const Reach reach : {Reach::Host, Reach::Nccl, Reach::PeerProcesses}) {
    DeviceRanks ranks{.reach = reach};
    ranks.layouts = {Layout::OneHost, Layout::TwoHosts};
    on_device_ranks(ranks, [](DeviceRank& rank) {
      const MachineLayout& machines = rank.context.machines();
      const Plan plan = share(topology::ring(machines.machine_count())
                                  .plan_for(machines.machine_of(rank.context.rank())));
      for (const Dtype dtype : {Dtype::Float32, Dtype::BFloat16}) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{7001}}) {
          const Values input = thirds(dtype, count, rank.context.rank());
          Values expected = input;
          ops::hierarchical_neighbor_allreduce(rank.context, expected.view(), plan);
          const BufferView own = rank.upload(input);
          const BufferView output = rank.upload(Values(dtype, count));
          ops::hierarchical_neighbor_allreduce(rank.context, own, output, plan);
          ASSERT_EQ(rank.download(output), expected) << name_of(dtype) << "[" << count << "]";
          ASSERT_EQ(rank.download(own), input);
          ops::hierarchical_neighbor_allreduce(rank.context, own, plan,
                                               {.check = ops::PlanCheck::Checked});
          ASSERT_EQ(rank.download(own), expected) << name_of(dtype) << "[" << count << "]";
        }
      }
    });
  }
}

TEST(StagedPairGossip, PairsInNoOrder) {
  for (const Reach reach : {Reach::Host, Reach::Nccl, Reach::PeerProcesses}) {
    on_device_ranks({.at_least = 2, .at_most = few(8, 3), .reach = reach}, [](DeviceRank& rank) {
      const int own = rank.context.rank();
      const int target = own ^ 1;
      if (target >= rank.context.size()) {
        return;
      }
      for (const std::size_t count : {std::size_t{11}, kSeveralPieces}) {
        Values expected = thirds(Dtype::Float32, count, own);
        const BufferView buffer = rank.upload(expected);
        ops::pair_gossip(rank.context, buffer, target);
        ops::pair_gossip(rank.context, expected.view(), target);
        ASSERT_EQ(rank.download(buffer), expected);
      }
    });
  }
}

/// The call alone waits for what the caller's stream has not done yet.
TEST(StagedCalls, ComeAfterTheCallersStream) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = 2;
  ranks.at_most = 4;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    rank.shut(rank.stream);
    Values expected = thirds(Dtype::Float32, 100, rank.context.rank());
    const BufferView own = rank.upload(expected);
    const Work work = ops::allreduce_nonblocking(rank.context, own);
    EXPECT_FALSE(work.done());
    meet(rank.context);
    rank.open();
    // Beside it, and after it, on the CPU.
    ops::allreduce(rank.context, expected.view());
    work.wait();
    work.synchronize();
    EXPECT_TRUE(work.done());
    ASSERT_EQ(rank.download(own), expected);
  });
}

TEST(StagedCalls, SeveralUnderWayOnStreamsOfTheirOwn) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) { several_under_way(rank); });
}

TEST(StagedCalls, TakeHostMemoryOnce) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = ranks.at_most = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const BufferView own = rank.upload(thirds(Dtype::Float32, 5000, rank.context.rank()));
    const auto step = [&] {
      for (int i = 0; i < 20; ++i) {
        ops::allreduce_nonblocking(rank.context, own).synchronize();
      }
      meet(rank.context);
    };
    step();
    const int before = rank.cuda.counts()["cuMemHostAlloc"];
    EXPECT_GT(before, 0);
    meet(rank.context);
    step();
    EXPECT_EQ(rank.cuda.counts()["cuMemHostAlloc"], before);
    meet(rank.context);
  });
}

/// To the others a staged call is the CPU's.
TEST(StagedCalls, MeetRanksOnTheCpu) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    Values expected = thirds(Dtype::Float32, 5000, own);
    Values on_cpu = expected;
    ops::neighbor_allreduce(rank.context, expected.view(), plan);
    const BufferView buffer = own % 2 == 0 ? rank.upload(on_cpu) : on_cpu.view();
    ops::neighbor_allreduce(rank.context, buffer, plan);
    ASSERT_EQ(own % 2 == 0 ? rank.download(buffer) : on_cpu, expected);
  });
}

/// A dropped work's result comes all the same, and its memory is kept until then.
TEST(StagedCalls, OfDroppedWork) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = 2;
  ranks.at_most = 3;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    Values expected = thirds(Dtype::Float32, 5000, rank.context.rank());
    BufferView own = rank.upload(expected);
    ops::allreduce(rank.context, expected.view());
    std::atomic<bool> is_free{false};
    own.owner = std::shared_ptr<void>(own.data, [&](void*) { is_free.store(true); });
    (void)ops::allreduce_nonblocking(rank.context, own);
    own.owner.reset();
    while (!is_free.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Its end is known to no stream of ours, only to the host that looked.
    ASSERT_TRUE(std::equal(expected.bytes().begin(), expected.bytes().end(),
                           static_cast<const std::byte*>(own.data)));
  });
}

TEST(StagedCalls, AsSettingsSay) {
  const auto all = [](Settings& settings) { settings.ops_on_cpu = true; };
  on_device_ranks({.at_least = 2, .at_most = 3, .settings = all}, [](DeviceRank& rank) {
    Values expected = thirds(Dtype::Float32, 500, rank.context.rank());
    const BufferView own = rank.upload(expected);
    ops::allreduce(rank.context, own);
    ops::allreduce(rank.context, expected.view());
    ASSERT_EQ(rank.download(own), expected);
    EXPECT_EQ(rank.cuda.counts()["nccl group"], 0);
    EXPECT_EQ(rank.cuda.counts()["ncclCommInitRank"], 0);
  });
  const auto one = [](Settings& settings) { settings.allreduce_by_mpi = true; };
  on_device_ranks({.at_least = 2, .at_most = 3, .settings = one}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 500, 0));
    ops::allreduce(rank.context, own);
    ASSERT_EQ(rank.download(own), small_integers(Dtype::Float32, 500, 0));
    meet(rank.context);
    EXPECT_EQ(rank.cuda.counts()["nccl group"], 0);
    meet(rank.context);
    ops::broadcast(rank.context, own, 0);
    EXPECT_GT(rank.cuda.counts()["nccl group"], 0);
  });
}

}  // namespace
}  // namespace bluefog::testing
