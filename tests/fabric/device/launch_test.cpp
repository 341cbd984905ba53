// Calls that a device does not launch: kernels that do not load, launches that fail, memory that a
// kernel cannot read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
/// CUDA_ERROR_NO_BINARY_FOR_GPU.
constexpr int kNoBinary = 209;

class DeviceKernels : public ::testing::Test {
 protected:
  std::shared_ptr<CudaStandIn> cuda_ = std::make_shared<CudaStandIn>(2);
  gpu::Libraries libraries_{.cuda = cuda_, .nccl = std::make_shared<NcclStandIn>(cuda_)};
  Ranks two_{.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}};
};

/// A device of a generation that the build left out, on one rank: all calls go through the host.
TEST_F(DeviceKernels, ThatDoNotLoad) {
  cuda_->fail_next("cuModuleGetFunction", 1, kNoBinary);
  two_.settings = [](Settings& settings, int) { settings.log_level = LogLevel::Error; };
  on_ranks(two_, [&](Context& context) {
    context.core().use_device(context.rank(), &libraries_);
    EXPECT_EQ(context.core().device()->way_of(OpKind::NeighborAllreduce), DeviceWay::Host);
    DeviceRank rank(context, cuda_, std::static_pointer_cast<NcclStandIn>(libraries_.nccl));
    const Values input = thirds(Dtype::Float32, 100, context.rank());
    Values expected = input;
    const BufferView own = rank.upload(input);
    ops::neighbor_allreduce(context, own, ring_plan(context));
    ops::neighbor_allreduce(context, expected.view(), ring_plan(context));
    EXPECT_EQ(rank.download(own), expected);
  });
}

TEST_F(DeviceKernels, ErrorsOfUseDeviceSayWhereTheyAre) {
  cuda_->fail_next("cuStreamCreate", 1, 700);
  on_ranks(two_, [&](Context& context) {
    if (context.rank() == 1) {
      EXPECT_THAT(error_of<CudaError>([&] { context.core().use_device(1, &libraries_); }),
                  HasSubstr("rank 1, use_device, CUDA device 1: cuStreamCreate"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { context.core().use_device(0, &libraries_); }),
                  HasSubstr("rank 1 could not: rank 1, use_device, CUDA device 1"));
    }
  });
}

class DeviceLaunch : public OverLinks {};
BF_OVER_LINKS(DeviceLaunch);

/// The transfer before the kernel is under way: the stand-in says so where what it uses is freed.
TEST_P(DeviceLaunch, OfAKernelThatFailsKeepsWhatTheTransferUses) {
  constexpr int kTimes = 1;
  for (int i = 0; i < 2 * kTimes; ++i) {
    const auto completion = i % 2 == 0 ? ops::Completion::AsItArrives : ops::Completion::OnWait;
    on_links({.at_least = 2, .at_most = 2, .expect_usable = false}, [&](DeviceRank& rank) {
      BufferView own = rank.upload(thirds(Dtype::Float32, 50'000, rank.context.rank()));
      rank.cuda.synchronize(rank.stream);
      own.owner = std::shared_ptr<void>(own.data, [&rank](void* data) {
        const gpu::DeviceScope scope(rank.cuda, rank.context.rank());
        rank.cuda.free(data);
      });
      if (rank.context.rank() == 1) {
        rank.shut(rank.stream);  // its device comes later
      }
      meet(rank.context);
      const auto call = [&] {
        ops::neighbor_allreduce_nonblocking(rank.context, std::exchange(own, {}),
                                            ring_plan(rank.context), {.completion = completion})
            .wait();
      };
      if (rank.context.rank() == 0) {
        rank.cuda.fail_next("cuLaunchKernel", 0, kNoBinary);
        EXPECT_THAT(error_of<CudaError>(call), AllOf(HasSubstr("rank 0, call "),
                                                     HasSubstr("neighbor_allreduce(float32[50000]"),
                                                     HasSubstr("cuLaunchKernel")));
        rank.context.close();
      } else {
        (void)problem_of(call);
        rank.open();
        rank.context.close();
      }
    });
  }
}

/// Nobody opens the stream before: as that of a process which was killed.
TEST_P(DeviceLaunch, ThatIsNeverDoneEndsSynchronize) {
  on_links({.at_least = 2,
            .at_most = 2,
            .settings = [](Settings& settings) { settings.timeout = std::chrono::seconds(1); }},
           [](DeviceRank& rank) {
             rank.shut(rank.stream);
             const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
             const Work work = ops::allreduce_nonblocking(rank.context, own);
             EXPECT_THAT(error_of<Error>([&] { work.synchronize(); }), HasSubstr("launched"));
             meet(rank.context);
             rank.open();
             expect_ended(rank, "launched");
           });
}

/// Rank 0 cannot launch what all have agreed on: the others have, and are told.
TEST(DeviceLaunch, ThatFailsIsToldToTheOthers) {
  on_device_ranks({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    if (rank.context.rank() == 0) {
      rank.cuda.fail_next("ncclGroupEnd", 0, 3);
      EXPECT_THAT(error_of<NcclError>([&] { ops::allreduce(rank.context, own); }),
                  HasSubstr("ncclGroupEnd: an injected error"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>(
                      [&] { ops::allreduce_nonblocking(rank.context, own).synchronize(); }),
                  AllOf(HasSubstr("rank 0"), HasSubstr("an injected error")));
    }
    meet(rank.context);
    expect_ended(rank, "an injected error");
  });
}

/// On a path 0 – 1 – 2, rank 2 refuses the first call once rank 0 has launched its part of it and
/// made the second: rank 1, which has not launched the first, must not send rank 0 the second's
/// payload in its place.
TEST(DeviceLaunch, OfACallBehindOneThatOnlyTheOtherRankHasLaunched) {
  constexpr std::int64_t kFirst = 5;
  constexpr std::int64_t kSecond = 9;
  std::atomic<bool> has_made_both{false};
  on_device_ranks({.at_least = 3, .at_most = 3}, [&](DeviceRank& rank) {
    const int own = rank.context.rank();
    const auto plan_with = [own](std::initializer_list<int> others) {
      NeighborPlan plan = NeighborPlan::alone(own, 3);
      for (const int other : others) {
        plan.sources.push_back({other, 0.25});
        plan.destinations.push_back({other, 1.0});
      }
      return std::make_shared<const NeighborPlan>(std::move(plan));
    };
    BufferView first = rank.upload(small_integers(Dtype::Float32, kFirst, own));
    const BufferView second = rank.upload(small_integers(Dtype::Float32, kSecond, own));
    const auto start = [&](const BufferView& buffer, const Plan& plan) {
      return ops::neighbor_allreduce_nonblocking(rank.context, buffer, plan);
    };
    if (own == 0) {
      const Work of_first = start(first, plan_with({1}));
      while (rank.cuda.counts()["nccl group"] == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const Work of_second = start(second, plan_with({1}));
      has_made_both = true;
      EXPECT_THROW(of_first.synchronize(), PeerFailure);
      EXPECT_THROW(of_second.synchronize(), Error);
    } else if (own == 1) {
      EXPECT_THROW(start(first, plan_with({0, 2})).wait(), PeerFailure);
      EXPECT_THAT(error_of<PeerFailure>([&] { start(second, plan_with({0})).wait(); }),
                  ::testing::AnyOf(HasSubstr("has launched 1"), HasSubstr("rank 0")));
    } else {
      while (!has_made_both) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      first.device.index = 7;
      EXPECT_THROW(start(first, plan_with({1})).wait(), InvalidArgument);
      start(second, plan_with({})).wait();
    }
    meet(rank.context);
  });
}

/// A rank that is late in the first call has not launched it when a neighbour's terms of the second
/// come, which has.
TEST(DeviceLaunch, OfNeighborsThatAreAhead) {
  on_device_ranks({.at_least = 4, .at_most = 4}, [](DeviceRank& rank) {
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds; ++round) {
      Values expected = thirds(Dtype::Float32, 40, rank.context.rank());
      const BufferView own = rank.upload(expected);
      if (rank.context.rank() == round % rank.context.size()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      std::vector<Work> works;
      for (int call = 0; call < 3; ++call) {
        works.push_back(
            ops::neighbor_allreduce_nonblocking(rank.context, own, ring_plan(rank.context)));
      }
      for (const Work& work : works) {
        work.wait();
        ops::neighbor_allreduce(rank.context, expected.view(), ring_plan(rank.context));
      }
      ASSERT_EQ(rank.download(own), expected);
    }
  });
}

class DeviceAlignment : public OverLinks {};
BF_OVER_LINKS(DeviceAlignment);

TEST_P(DeviceAlignment, OfElementsIsAsked) {
  on_links({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(thirds(Dtype::Float32, 8, 0), rank.stream, 2);
    EXPECT_THAT(error_of<InvalidArgument>(
                    [&] { ops::neighbor_allreduce(rank.context, own, ring_plan(rank.context)); }),
                AllOf(HasSubstr("neighbor_allreduce: expected memory for float32 on CUDA device"),
                      HasSubstr("at a multiple of 4 bytes, found it 2 bytes behind one")));
    meet(rank.context);
    expect_device_usable(rank);
  });
}

}  // namespace
}  // namespace bluefog::testing
