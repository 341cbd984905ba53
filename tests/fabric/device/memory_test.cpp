// A device that has no memory left when a call asks for it, over the stand-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// CUDA_ERROR_OUT_OF_MEMORY.
constexpr int kNoMemory = 2;
/// Longer than what a link has to itself at first.
constexpr std::size_t kLong = std::size_t{3} << 18U;

class DeviceMemory : public OverLinks {};
BF_OVER_LINKS(DeviceMemory);

/// The call is refused before anything moves, and the device goes on. All ranks are neighbours: one
/// that is not may have launched already when it hears of it.
TEST_P(DeviceMemory, IsTakenBeforeNeighborsAgree) {
  for (const auto completion : {ops::Completion::AsItArrives, ops::Completion::OnWait}) {
    on_links({.at_least = 2, .at_most = 3}, [completion](DeviceRank& rank) {
      const Values input = small_integers(Dtype::Float32, kLong, rank.context.rank());
      const BufferView own = rank.upload(input);
      const auto call = [&] {
        ops::neighbor_allreduce_nonblocking(rank.context, own, ring_plan(rank.context),
                                            {.completion = completion})
            .wait();
      };
      if (rank.context.rank() == 0) {
        // A pool gives back what it does not use and asks once more.
        rank.cuda.fail_next("cuMemAlloc", 0, kNoMemory,
                            completion == ops::Completion::OnWait ? 2 : 1);
        EXPECT_THAT(error_of<CudaError>(call),
                    AllOf(HasSubstr("rank 0, call "), HasSubstr("neighbor_allreduce"),
                          HasSubstr("cuMemAlloc")));
      } else {
        EXPECT_THAT(error_of<PeerFailure>(call),
                    AllOf(HasSubstr("rank 0"), HasSubstr("cuMemAlloc")));
      }
      meet(rank.context);
      EXPECT_EQ(rank.download(own), input);
      expect_device_usable(rank);
      call();
    });
  }
}

/// In a later exchange ranks that have agreed launch without asking: then the device's calls end.
/// Ranks that only wait for ranks that wait for it hear of it from these.
TEST(DeviceMemory, IsShortInALaterExchange) {
  on_device_ranks(
      {.at_least = 8,
       .at_most = 8,
       .settings = [](Settings& settings) { settings.nodes_per_machine = 2; }},
      [](DeviceRank& rank) {
        constexpr std::size_t kCount = 4096;
        const BufferView own = rank.upload(small_integers(Dtype::Float32, kCount, 0));
        const BufferView half = rank.upload(small_integers(Dtype::Float32, kCount / 2, 0));
        NeighborPlan pair = NeighborPlan::alone(rank.context.rank(), 8);
        const int other = rank.context.rank() ^ 1;
        pair.sources.push_back({other, 0.5});
        pair.destinations.push_back({other, 1.0});
        // Room for what the call receives in its machine, and half of what it then does from two
        // others.
        ops::neighbor_allreduce(rank.context, half,
                                std::make_shared<const NeighborPlan>(std::move(pair)));
        const auto between_machines = std::make_shared<const NeighborPlan>(
            topology::ring(4).plan_for(rank.context.rank() / 2));
        const auto call = [&] {
          ops::hierarchical_neighbor_allreduce_nonblocking(rank.context, own, between_machines)
              .synchronize();
        };
        if (rank.context.rank() == 0) {
          rank.cuda.fail_next("cuMemAlloc", 0, kNoMemory);
          EXPECT_THAT(error_of<CudaError>(call),
                      AllOf(HasSubstr("hierarchical_neighbor_allreduce"), HasSubstr("cuMemAlloc")));
          EXPECT_NE(rank.context.core().device()->failure(), nullptr);
        } else {
          EXPECT_THAT(error_of<PeerFailure>(call), HasSubstr("cuMemAlloc"));
        }
        meet(rank.context);
      });
}

/// Payloads of many lengths share slots of few sizes.
TEST(DeviceMemory, OfMailboxesIsOfFewSizes) {
  constexpr std::size_t kStep = std::size_t{2} << 20U;
  constexpr int kFirst = 8;
  constexpr int kLast = 15;
  static constexpr int kMostSlots = 6;  // else each length has its own: 8
  on_device_ranks({.at_least = 2, .at_most = 2, .reach = Reach::PeerThreads}, [](DeviceRank& rank) {
    BufferView own = rank.upload(small_integers(Dtype::Int8, kLast * kStep, 0));
    meet(rank.context);
    const int before = rank.cuda.counts()["cuMemAlloc"];
    meet(rank.context);
    for (int i = kFirst; i <= kLast; ++i) {
      own.count = static_cast<std::int64_t>(static_cast<std::size_t>(i) * kStep);
      ops::broadcast(rank.context, own, 0);
    }
    meet(rank.context);
    EXPECT_LE(rank.cuda.counts()["cuMemAlloc"] - before, kMostSlots);
    meet(rank.context);
  });
}

/// Over each link, and through the host.
class DeviceMemoryOfCalls : public OverLinks {};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceMemoryOfCalls,
                         ::testing::Values(Reach::Nccl, Reach::PeerProcesses, Reach::PeerThreads,
                                           Reach::Host),
                         link_name);

TEST_P(DeviceMemoryOfCalls, IsBoundedWhateverTheirSizes) {
  constexpr double kGrowth = 1.1;
  constexpr int kCalls = 40;
  constexpr int kMostBlocks = 24;  // of all kinds, on a rank
  on_links({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const auto blocks = [&rank] {
      auto counts = rank.cuda.counts();
      return counts["cuMemAlloc"] - counts["cuMemFree"] + counts["cuMemHostAlloc"] -
             counts["cuMemFreeHost"];
    };
    const BufferView own = rank.upload(small_integers(Dtype::Float32, kLong, 0));
    meet(rank.context);
    const int before = blocks();
    meet(rank.context);
    for (const auto completion : {ops::Completion::AsItArrives, ops::Completion::OnWait}) {
      BufferView part = own;
      double count = static_cast<double>(kLong) / std::pow(kGrowth, kCalls);
      for (int i = 0; i < kCalls; ++i, count *= kGrowth) {
        part.count = static_cast<std::int64_t>(count);
        ops::neighbor_allreduce_nonblocking(rank.context, part, ring_plan(rank.context),
                                            {.completion = completion})
            .synchronize();
      }
    }
    meet(rank.context);
    EXPECT_LT(blocks() - before, rank.context.size() * kMostBlocks);
    meet(rank.context);
  });
}

}  // namespace
}  // namespace bluefog::testing
