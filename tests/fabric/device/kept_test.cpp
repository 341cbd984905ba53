// Calls whose result is held back until somebody waits, over the stand-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "bluefog_cpp/error.hpp"
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
const ops::NeighborAllreduceOptions kOnWait{.completion = ops::Completion::OnWait};

Plan exponential(const Context& context) {
  return std::make_shared<const NeighborPlan>(
      topology::exponential(context.size()).plan_for(context.rank()));
}

/// The CPU's result for the same values.
Values average_of(Context& context, Values values, const Plan& plan) {
  ops::neighbor_allreduce(context, values.view(), plan);
  return values;
}

/// Later work on `second` comes after what is on `first` now.
void order(DeviceRank& rank, gpu::StreamHandle first, gpu::StreamHandle second) {
  const gpu::EventHandle event = rank.cuda.make_event();
  rank.cuda.record(event, first);
  rank.cuda.wait(second, event);
}

class DeviceKept : public OverLinks {};
BF_OVER_LINKS(DeviceKept);

/// Over each link, and through the host.
class DeviceHeld : public OverLinks {};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceHeld,
                         ::testing::Values(Reach::Nccl, Reach::PeerProcesses, Reach::PeerThreads,
                                           Reach::Host),
                         link_name);

TEST_P(DeviceHeld, BitsOfTheCpuAndNoneBeforeTheWait) {
  on_links({}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : {0, 1, 1003}) {
        for (const ops::PlanCheck check : {ops::PlanCheck::Trusted, ops::PlanCheck::Checked}) {
          const Values input = thirds(dtype, count, rank.context.rank());
          const Values expected = average_of(rank.context, input, plan);
          const BufferView own = rank.upload(input, rank.stream, size_of(dtype));
          const Work work = ops::neighbor_allreduce_nonblocking(
              rank.context, own, plan, {.check = check, .completion = ops::Completion::OnWait});
          meet(rank.context);
          if (count > 0) {
            ASSERT_FALSE(work.done());
          }
          ASSERT_EQ(rank.download(own), input);
          work.wait();
          ASSERT_EQ(rank.download(own), expected) << name_of(dtype) << "[" << count << "]";
        }
      }
    }
  });
}

/// Like a forward and backward pass that reads the model meanwhile.
TEST_P(DeviceHeld, TheResultComesAfterWhatIsOnTheStreamAtTheWait) {
  on_links({}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    const Values input = thirds(Dtype::Float32, 501, rank.context.rank());
    const Values expected = average_of(rank.context, input, plan);
    const BufferView own = rank.upload(input);
    const Work work = ops::neighbor_allreduce_nonblocking(rank.context, own, plan, kOnWait);
    meet(rank.context);
    rank.shut(rank.stream);
    void* const read = rank.cuda.allocate_host(own.bytes());
    rank.cuda.copy(read, own.data, own.bytes(), rank.stream);
    work.wait();
    rank.open();
    EXPECT_EQ(rank.download(own), expected);
    EXPECT_EQ(std::memcmp(read, Values(input).bytes().data(), own.bytes()), 0);
  });
}

/// Like a training loop that steps on another stream than it has begun on.
TEST_P(DeviceHeld, AWaitOnAnotherStreamOrdersThatOneToo) {
  for (const auto completion : {ops::Completion::AsItArrives, ops::Completion::OnWait}) {
    on_links({.at_most = 3}, [completion](DeviceRank& rank) {
      const Plan plan = exponential(rank.context);
      const Values input = thirds(Dtype::Float32, 501, rank.context.rank());
      const Values expected = average_of(rank.context, input, plan);
      BufferView own = rank.upload(input);
      const Work work =
          ops::neighbor_allreduce_nonblocking(rank.context, own, plan, {.completion = completion});
      EXPECT_EQ(work.device(), own.device);
      meet(rank.context);
      const gpu::StreamHandle other = rank.cuda.make_stream();
      void* const read = rank.cuda.allocate_host(own.bytes());
      if (completion == ops::Completion::OnWait) {
        order(rank, rank.stream, other);  // the input was written there
        rank.shut(other);
        rank.cuda.copy(read, own.data, own.bytes(), other);
      }
      work.wait(other);
      rank.open();
      own.stream = other;
      EXPECT_EQ(rank.download(own), expected);
      if (completion == ops::Completion::OnWait) {
        EXPECT_EQ(std::memcmp(read, Values(input).bytes().data(), own.bytes()), 0);
      }
    });
  }
}

TEST_P(DeviceKept, MessagesOfCallsUnderWayAreApart) {
  on_links({}, [](DeviceRank& rank) { several_under_way(rank, kOnWait); });
}

/// Calls on the CPU have to be taken in the order of their messages; results on devices rest.
TEST_P(DeviceHeld, WaitingForALaterCallLeavesTheBufferAlone) {
  on_links({}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    const Values input = thirds(Dtype::Float32, 77, rank.context.rank());
    const Values expected = average_of(rank.context, input, plan);
    const BufferView first = rank.upload(input);
    const BufferView second = rank.upload(input);
    Values on_cpu = input;
    const auto start = [&](const BufferView& buffer) {
      return ops::neighbor_allreduce_nonblocking(rank.context, buffer, plan, kOnWait);
    };
    const Work of_first = start(first);
    const Work of_second = start(second);
    const Work of_cpu = start(on_cpu.view());
    of_cpu.wait();
    of_second.wait();
    EXPECT_EQ(on_cpu, expected);
    EXPECT_EQ(rank.download(second), expected);
    EXPECT_EQ(rank.download(first), input);
    of_first.wait();
    EXPECT_EQ(rank.download(first), expected);
  });
}

TEST_P(DeviceKept, MemoryIsUsedAgain) {
  on_links({}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 3000, rank.context.rank()));
    const auto allocations_after = [&](int rounds) {
      for (int round = 0; round < rounds; ++round) {
        ops::neighbor_allreduce_nonblocking(rank.context, own, plan, kOnWait).wait();
        (void)rank.download(own);
      }
      meet(rank.context);
      const int allocations = rank.cuda.counts()["cuMemAlloc"];
      meet(rank.context);
      return allocations;
    };
    const int at_first = allocations_after(3);
    EXPECT_GT(at_first, 0);
    EXPECT_EQ(allocations_after(10), at_first);
  });
}

/// The host has the result already when its work is dropped.
TEST(DeviceHeldThroughTheHost, AStagedResultOfDroppedWorkComesAfterTheDrop) {
  on_device_ranks({.at_least = 2, .at_most = 4, .reach = Reach::Host}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    const Values input = thirds(Dtype::Float32, 77, rank.context.rank());
    const Values expected = average_of(rank.context, input, plan);
    const BufferView first = rank.upload(input);
    const BufferView second = rank.upload(input);
    {
      const Work dropped = ops::neighbor_allreduce_nonblocking(rank.context, first, plan, kOnWait);
      ops::neighbor_allreduce_nonblocking(rank.context, second, plan, kOnWait).wait();
      EXPECT_TRUE(dropped.done());
      EXPECT_EQ(rank.download(first), input);
    }
    EXPECT_EQ(rank.download(first), expected);
  });
}

/// Its work is dropped first.
TEST(DeviceHeldThroughTheHost, AStagedResultOfDroppedWorkComesByItself) {
  on_device_ranks({.at_least = 2, .at_most = 4, .reach = Reach::Host}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    const Values input = thirds(Dtype::Float32, 5000, rank.context.rank());
    Values expected = average_of(rank.context, input, plan);
    rank.shut(rank.stream);
    BufferView own = rank.upload(input);
    std::atomic<bool> is_free{false};
    own.owner = std::shared_ptr<void>(own.data, [&](void*) { is_free.store(true); });
    (void)ops::neighbor_allreduce_nonblocking(rank.context, own, plan, kOnWait);
    own.owner.reset();
    rank.open();
    while (!is_free.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Its end is known to no stream of ours, only to the host that looked.
    ASSERT_TRUE(std::equal(expected.bytes().begin(), expected.bytes().end(),
                           static_cast<const std::byte*>(own.data)));
  });
}

TEST(DeviceHeldThroughTheHost, AStagedResultThatCannotBeCopiedIsTheWaitersError) {
  on_device_ranks({.at_least = 2, .at_most = 2, .reach = Reach::Host}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    const Values input = thirds(Dtype::Float32, 9, rank.context.rank());
    const Values expected = average_of(rank.context, input, plan);
    const BufferView own = rank.upload(input);
    const Work work = ops::neighbor_allreduce_nonblocking(rank.context, own, plan, kOnWait);
    EXPECT_EQ(rank.download(own), input);  // its copy to the host has been started
    rank.cuda.fail_next("cuMemcpyAsync", rank.context.rank(), 700);
    EXPECT_THAT(error_of<CudaError>([&] { work.wait(); }),
                AllOf(HasSubstr("neighbor_allreduce(float32[9]"), HasSubstr("an injected error")));
    meet(rank.context);
    work.wait();
    EXPECT_EQ(rank.download(own), expected);
  });
}

/// Nobody waits, and the context is closed: what the device still does comes to its end first.
TEST_P(DeviceHeld, DroppedCalls) {
  on_links({}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    for (int i = 0; i < 3; ++i) {
      const BufferView own = rank.upload(small_integers(Dtype::Float32, 5000, i));
      (void)ops::neighbor_allreduce_nonblocking(rank.context, own, plan, kOnWait);
    }
  });
}

TEST_P(DeviceKept, ARefusalReachesTheOther) {
  on_links({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const Plan plan = exponential(rank.context);
    BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    const auto call = [&] {
      ops::neighbor_allreduce_nonblocking(rank.context, own, plan, kOnWait).synchronize();
    };
    if (rank.context.rank() == 0) {
      own.device.index = 77;
      EXPECT_THROW(call(), InvalidArgument);
    } else {
      EXPECT_THAT(error_of<PeerFailure>(call), HasSubstr("found one on CUDA device 77"));
    }
    meet(rank.context);
    expect_device_usable(rank);
  });
}

TEST(DeviceKeptByNccl, TheChannelEndsWhileTheCallRests) {
  on_device_ranks({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    rank.shut(rank.stream);
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    const Work work =
        ops::neighbor_allreduce_nonblocking(rank.context, own, exponential(rank.context), kOnWait);
    meet(rank.context);
    rank.nccl.set_async_error(rank.context.rank(), "the network is gone");
    while (rank.cuda.counts()["ncclCommAbort"] < rank.context.size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    rank.open();
    // NCCL's own error, or that of a rank which has found it before.
    EXPECT_THAT(error_of<Error>([&] { work.wait(); }), HasSubstr("the network is gone"));
  });
}

}  // namespace
}  // namespace bluefog::testing
