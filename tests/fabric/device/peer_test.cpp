// Calls by copies between the devices of one host, over the stand-in of CUDA: which ranks they
// serve, what becomes of mailboxes, and what goes wrong in them. The other tests of devices
// look at the behaviour that all links share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/window.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/cuda_process.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

/// One source and one reader, another one in each step.
Plan one_peer(const Context& context, int step) {
  const int n = context.size();
  NeighborPlan plan = NeighborPlan::alone(context.rank(), n);
  const int distance = 1 + step % (n - 1);
  plan.self_weight = 0.5;
  plan.sources = {{(context.rank() + n - distance) % n, 0.5}};
  plan.destinations = {{(context.rank() + distance) % n, 1.0}};
  return std::make_shared<const NeighborPlan>(std::move(plan));
}

/// Both calls give the same bits.
void expect_like_the_cpu(DeviceRank& rank, std::size_t count, const Plan& plan) {
  Values expected = thirds(Dtype::Float32, count, rank.context.rank());
  const BufferView own = rank.upload(expected);
  ops::neighbor_allreduce(rank.context, own, plan);
  ops::neighbor_allreduce(rank.context, expected.view(), plan);
  ASSERT_EQ(rank.download(own), expected) << count;
}

/// Over processes and threads.
class DevicePeer : public ::testing::TestWithParam<Reach> {
 protected:
  void on_peers(DeviceRanks ranks, const std::function<void(DeviceRank&)>& body) {
    ranks.reach = GetParam();
    on_device_ranks(ranks, body);
  }
};
INSTANTIATE_TEST_SUITE_P(Links, DevicePeer,
                         ::testing::Values(Reach::PeerProcesses, Reach::PeerThreads), link_name);

TEST_P(DevicePeer, SeveralRanksOnOneDevice) {
  for (const int share : {2, 8}) {
    on_peers({.at_least = 2, .ranks_per_device = share}, [](DeviceRank& rank) {
      for (const std::size_t count : {1, 1003}) {
        expect_like_the_cpu(rank, count, ring(rank.context));
        Values sum = thirds(Dtype::BFloat16, count, rank.context.rank());
        const BufferView own = rank.upload(sum);
        ops::allreduce(rank.context, own);
        ops::allreduce(rank.context, sum.view());
        ASSERT_EQ(rank.download(own), sum);
      }
    });
  }
}

TEST_P(DevicePeer, SlotsGrowAndAreUsedAgain) {
  on_peers({.at_least = 2, .at_most = few(4)}, [](DeviceRank& rank) {
    const Plan plan = ring(rank.context);
    const BufferView small = rank.upload(thirds(Dtype::Float32, 1000, rank.context.rank()));
    const BufferView large = rank.upload(thirds(Dtype::Float32, 1'500'000, rank.context.rank()));
    const auto allocations_after = [&](int rounds) {
      for (int round = 0; round < rounds; ++round) {
        ops::neighbor_allreduce(rank.context, small, plan);
        ops::neighbor_allreduce(rank.context, large, plan);
      }
      meet(rank.context);
      const int allocations = rank.cuda.counts()["cuMemAlloc"];
      meet(rank.context);
      return allocations;
    };
    const int at_first = allocations_after(3);
    EXPECT_EQ(allocations_after(8), at_first);
    expect_like_the_cpu(rank, 1'500'000, plan);
    expect_like_the_cpu(rank, 3, plan);
  });
}

/// Neighbours that meet again only after some calls: slots wait for them.
TEST_P(DevicePeer, AnotherNeighborInEachCall) {
  on_peers({.at_least = 3, .at_most = 4}, [](DeviceRank& rank) {
    Values expected = thirds(Dtype::Float32, 300, rank.context.rank());
    const BufferView own = rank.upload(expected);
    for (int step = 0; step < 30; ++step) {
      const Plan plan = one_peer(rank.context, step);
      ops::neighbor_allreduce(rank.context, own, plan);
      ops::neighbor_allreduce(rank.context, expected.view(), plan);
    }
    ASSERT_EQ(rank.download(own), expected);
  });
}

/// The readers' devices stand still while the writer's hosts go on: what they have not read stays.
TEST_P(DevicePeer, ASlotIsNotFilledBeforeItsReadersHaveRead) {
  on_peers({.at_least = 2, .at_most = 3}, [](DeviceRank& rank) {
    const Plan plan = ring(rank.context);
    if (rank.context.rank() == 1) {
      rank.shut(rank.context.core().device()->stream());
    }
    std::vector<Values> expected;
    std::vector<BufferView> buffers;
    for (int i = 0; i < 6; ++i) {
      Values values = thirds(Dtype::Float32, 100, rank.context.rank() + 10 * i);
      buffers.push_back(rank.upload(values));
      ops::neighbor_allreduce(rank.context, buffers.back(), plan);
      ops::neighbor_allreduce(rank.context, values.view(), plan);
      expected.push_back(std::move(values));
    }
    meet(rank.context);
    rank.open();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      ASSERT_EQ(rank.download(buffers[i]), expected[i]) << i;
    }
  });
}

/// Rank 2's host waits for rank 3's in the first call, with later ones behind it, while rank 0,
/// which has sent to it, goes on with rank 1.
TEST_P(DevicePeer, AReaderWhoseHostIsLate) {
  on_peers({.at_least = 4, .at_most = 4}, [](DeviceRank& rank) {
    constexpr int kCalls = 6;
    const int own = rank.context.rank();
    NeighborPlan first = NeighborPlan::alone(own, 4);
    if (own == 2) {
      first.sources = {{0, 0.25}, {3, 0.5}};
    } else if (own != 1) {
      first.destinations = {{2, 1.0}};
    }
    NeighborPlan later = NeighborPlan::alone(own, 4);
    later.self_weight = 0.5;
    later.sources = {{own ^ 1, 0.5}};
    later.destinations = {{own ^ 1, 1.0}};
    const std::vector<Plan> plans{std::make_shared<const NeighborPlan>(first),
                                  std::make_shared<const NeighborPlan>(later)};
    if (own == 3) {
      // The others have launched what they can: rank 0 and 1 all of it, and rank 2 nothing.
      while (rank.cuda.counts()["bluefog_weighted_sum_float32"] < 2 * kCalls) {
        std::this_thread::sleep_for(1ms);
      }
    }
    std::vector<BufferView> buffers;
    std::vector<Work> work;
    for (int i = 0; i < kCalls; ++i) {
      buffers.push_back(rank.upload(thirds(Dtype::Float32, 200, own + 10 * i)));
      work.push_back(
          ops::neighbor_allreduce_nonblocking(rank.context, buffers.back(), plans[i == 0 ? 0 : 1]));
    }
    for (int i = 0; i < kCalls; ++i) {
      work[static_cast<std::size_t>(i)].wait();
      Values expected = thirds(Dtype::Float32, 200, own + 10 * i);
      ops::neighbor_allreduce(rank.context, expected.view(), plans[i == 0 ? 0 : 1]);
      ASSERT_EQ(rank.download(buffers[static_cast<std::size_t>(i)]), expected) << i;
    }
  });
}

/// The payload was on its way to the mailbox already: what comes later on the stream comes after
/// it.
TEST_P(DevicePeer, ABufferMayBeWrittenAfterAFailedCall) {
  on_peers({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const std::size_t count = rank.context.rank() == 0 ? 10 : 11;
    rank.shut(rank.stream);
    const BufferView own = rank.upload(small_integers(Dtype::Float32, count, 0));
    EXPECT_THROW(
        {
          ops::neighbor_allreduce(rank.context, own, ring(rank.context));
          ops::barrier(rank.context);
        },
        MismatchError);
    rank.cuda.enqueue(rank.stream, "a kernel", {{own.data, own.bytes(), true}}, [] {});
    rank.open();
    meet(rank.context);
    expect_device_usable(rank);
  });
}

/// Nobody has heard of what rank 0 could not offer.
TEST_P(DevicePeer, AnOfferThatFails) {
  on_peers({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    if (rank.context.rank() == 0) {
      rank.cuda.fail_next("cuMemcpyAsync", 0, 700);
      EXPECT_THAT(error_of<CudaError>([&] { ops::allreduce(rank.context, own); }),
                  HasSubstr("cuMemcpyAsync: an injected error"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { ops::allreduce(rank.context, own); }),
                  HasSubstr("an injected error"));
    }
    meet(rank.context);
    expect_device_usable(rank);
    expect_like_the_cpu(rank, 77, ring(rank.context));
  });
}

/// Rank 0 launches no more; what it has offered comes, and its neighbours hear of it in the next
/// call.
TEST_P(DevicePeer, ALaunchThatFails) {
  on_peers({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const Plan plan = ring(rank.context);
    Values expected = thirds(Dtype::Float32, 50, rank.context.rank());
    const BufferView own = rank.upload(expected);
    ops::neighbor_allreduce(rank.context, expected.view(), plan);
    if (rank.context.rank() == 0) {
      rank.cuda.fail_next("cuLaunchKernel", 0, 700);
      EXPECT_THAT(error_of<CudaError>([&] { ops::neighbor_allreduce(rank.context, own, plan); }),
                  HasSubstr("cuLaunchKernel: an injected error"));
      meet(rank.context);
      EXPECT_THAT(error_of<StateError>([&] { ops::neighbor_allreduce(rank.context, own, plan); }),
                  AllOf(HasSubstr("this context makes no calls on CUDA device 0"),
                        HasSubstr("an injected error")));
    } else {
      ops::neighbor_allreduce(rank.context, own, plan);
      ASSERT_EQ(rank.download(own), expected);
      meet(rank.context);
      EXPECT_THROW(ops::neighbor_allreduce(rank.context, own, plan), PeerFailure);
    }
  });
}

/// Rank 0 leaves first, when all have launched: it waits for the others to let go of its memory, or
/// leaves that to the process.
TEST_P(DevicePeer, LeavingAtDifferentTimes) {
  for (const bool is_late : {false, true}) {
    on_peers({.at_least = 2,
              .at_most = is_late ? 2 : 4,
              .settings = [](Settings& settings) { settings.timeout = 1s; },
              .expect_usable = false},
             [is_late](DeviceRank& rank) {
               const int before = rank.cuda.counts()["cuMemFree"];
               const BufferView own = rank.upload(thirds(Dtype::Float32, 5000, 1));
               ops::neighbor_allreduce(rank.context, own, ring(rank.context));
               meet(rank.context);
               if (rank.context.rank() == 0) {
                 rank.context.close();
                 EXPECT_EQ(rank.cuda.counts()["cuMemFree"] > before, !is_late);
               } else {
                 std::this_thread::sleep_for(is_late ? 1500ms : 100ms);
                 EXPECT_EQ(rank.cuda.counts()["cuMemFree"], before);
                 (void)rank.download(own);
               }
             });
  }
}

/// Rank 0 has sent and leaves, long before rank 1's device comes to read.
TEST_P(DevicePeer, WhatARankHasSentOutlastsIt) {
  on_peers({.at_least = 2, .at_most = 2, .expect_usable = false}, [](DeviceRank& rank) {
    NeighborPlan plan = NeighborPlan::alone(rank.context.rank(), 2);
    if (rank.context.rank() == 0) {
      plan.destinations = {{1, 1.0}};
    } else {
      plan.self_weight = 0.5;
      plan.sources = {{0, 0.5}};
    }
    const auto shared = std::make_shared<const NeighborPlan>(plan);
    Values expected = thirds(Dtype::Float32, 700, rank.context.rank());
    const BufferView own = rank.upload(expected);
    ops::neighbor_allreduce(rank.context, expected.view(), shared);
    if (rank.context.rank() == 1) {
      rank.shut(rank.context.core().device()->stream());
    }
    ops::neighbor_allreduce(rank.context, own, shared);
    meet(rank.context);
    if (rank.context.rank() == 0) {
      rank.context.close();
      return;
    }
    std::this_thread::sleep_for(1500ms);  // longer than others are waited for
    EXPECT_EQ(rank.context.core().device()->failure(), nullptr);
    rank.open();
    ASSERT_EQ(rank.download(own), expected);
  });
}

/// CUDA waits for the device where memory is given back: a rank whose stream waits for one that
/// never comes gives none back, and ends.
TEST_P(DevicePeer, NoMemoryIsGivenBackWhileADeviceIsStuck) {
  std::barrier all_have_closed(2);  // the end of a rank's body opens its stream
  on_peers({.at_least = 2,
            .at_most = 2,
            .settings = [](Settings& settings) { settings.timeout = 300ms; },
            .expect_usable = false},
           [&](DeviceRank& rank) {
             const BufferView own = rank.upload(thirds(Dtype::Float32, 5, rank.context.rank()));
             ops::allreduce(rank.context, own);
             (void)rank.download(own);
             const NeighborPlan plan = topology::ring(2).plan_for(rank.context.rank());
             const auto window = ops::Window::create(rank.context, own, plan);
             meet(rank.context);
             if (rank.context.rank() == 1) {
               rank.shut(rank.stream);
             }
             const Work work = ops::allreduce_nonblocking(rank.context, own);
             work.wait();
             EXPECT_THAT(error_of<TimeoutError>([&] { work.synchronize(); }),
                         HasSubstr("launched, and not done on the device after 0.3 s"));
             EXPECT_THROW(window->free(), Error);
             meet(rank.context);
             const auto before = rank.cuda.counts();
             meet(rank.context);
             rank.context.close();
             all_have_closed.arrive_and_wait();
             auto after = rank.cuda.counts();
             for (const char* const call : {"cuMemFree", "cuMemFreeHost", "cuIpcCloseMemHandle"}) {
               EXPECT_EQ(after[call], before.contains(call) ? before.at(call) : 0) << call;
             }
             all_have_closed.arrive_and_wait();
           });
}

}  // namespace
}  // namespace bluefog::testing
