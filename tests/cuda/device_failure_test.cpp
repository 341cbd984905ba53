// Failures of calls on GPUs: who gets which error, and what can be used afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/cuda/ways.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// Time enough for NCCL to connect ranks.
constexpr auto kTimeout = 4s;

/// Runs of threads at other numbers of ranks are spared: one is enough for so long a wait.
bool is_spared(Context& context) {
  return context.core().bootstrap().in_process() && context.size() < 4;
}

class DeviceFailure : public OverWays {
 protected:
  /// Runs `body` with a buffer on each GPU whose streams can be shut, and a short timeout.
  void on_gpus_that_shut(const std::function<void(Rank&, const BufferView&)>& body) {
    if (!Gpu::why_not_shut().empty()) {
      GTEST_SKIP() << Gpu::why_not_shut();
    }
    on_gpus({.at_least = 2, .timeout = kTimeout}, [&body](Rank& rank) {
      if (is_spared(rank.context)) {
        return;
      }
      expect_device_usable(rank);
      const BufferView own = rank.gpu.upload(thirds(Dtype::Float32, 5, rank.context.rank()));
      rank.gpu.synchronize();
      meet(rank.context);
      body(rank, own);
    });
  }
};
BF_OVER_WAYS(DeviceFailure);

TEST_P(DeviceFailure, ATensorOnAnotherDevice) {
  on_gpus([](Rank& rank) {
    Context& context = rank.context;
    const std::string expected = std::to_string(rank.gpu.device());
    const std::string found = std::to_string(rank.gpu.device() + 50);
    const Values values = thirds(Dtype::Float32, 4, context.rank());
    const BufferView own = rank.gpu.upload(values);
    BufferView elsewhere = own;
    elsewhere.device.index += 50;
    Values on_cpu = values;
    const Plan plan = plan_of(context, topology::exponential(context.size()));
    EXPECT_THAT(
        error_of<InvalidArgument>([&] { ops::allreduce(context, elsewhere); }),
        AllOf(HasSubstr("rank " + std::to_string(context.rank()) +
                        ", allreduce: expected a buffer on the CPU or on CUDA device " + expected),
              HasSubstr("found one on CUDA device " + found)));
    EXPECT_THAT(error_of<InvalidArgument>(
                    [&] { ops::neighbor_allreduce(context, on_cpu.view(), own, plan); }),
                HasSubstr("expected input and output on the same device, found them on the CPU and "
                          "CUDA device " +
                          expected));
    if (const int pair = context.rank() ^ 1; pair < context.size()) {
      EXPECT_THAT(error_of<InvalidArgument>([&] { ops::pair_gossip(context, elsewhere, pair); }),
                  HasSubstr("pair_gossip: expected a buffer on the CPU or on CUDA device"));
    }
    EXPECT_EQ(rank.gpu.download(own), values);
    ops::barrier(context);
    expect_device_usable(rank);
  });
}

TEST_P(DeviceFailure, ARefusalReachesTheOthers) {
  on_gpus({.at_least = 2}, [](Rank& rank) {
    const Values values = thirds(Dtype::Float32, 5, rank.context.rank());
    const BufferView own = rank.gpu.upload(values);
    if (rank.context.rank() == 0) {
      BufferView wrong = own;
      wrong.device.index = 77;
      EXPECT_THROW(ops::allreduce(rank.context, wrong), InvalidArgument);
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { ops::allreduce(rank.context, own); }),
                  AllOf(HasSubstr("rank 0 ended this call with an error"),
                        HasSubstr("found one on CUDA device 77")));
    }
    EXPECT_EQ(rank.gpu.download(own), values);
    meet(rank.context);
    expect_device_usable(rank);
  });
}

/// The others' call times out before its launch; then the late rank gets the error.
TEST_P(DeviceFailure, ARankThatDoesNotCome) {
  on_gpus({.at_least = 2, .timeout = kTimeout}, [](Rank& rank) {
    const int last = rank.context.size() - 1;
    if (is_spared(rank.context)) {
      return;
    }
    expect_device_usable(rank);
    const Values values = thirds(Dtype::Float32, 5, rank.context.rank());
    const BufferView own = rank.gpu.upload(values);
    meet(rank.context);
    if (rank.context.rank() != last) {
      const auto begin = std::chrono::steady_clock::now();
      try {
        ops::allreduce(rank.context, own);
        ADD_FAILURE() << "expected an exception";
      } catch (const TimeoutError& error) {
        EXPECT_THAT(error.what(), HasSubstr("no message from rank " + std::to_string(last)));
      } catch (const PeerFailure&) {  // another one has given up before
        EXPECT_GT(rank.context.size(), 2);
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 3 * kTimeout);
      if (!goes_through_host()) {
        EXPECT_EQ(rank.gpu.download(own), values);
      }
    }
    meet(rank.context);
    if (rank.context.rank() == last) {
      EXPECT_THROW(ops::allreduce(rank.context, own), PeerFailure);
    }
    meet(rank.context);
    expect_device_usable(rank);
  });
}

/// The last rank's device comes to its part of a call only after the timeout: a launched call is
/// cut short on all ranks, and ends their calls on devices for good.
TEST_P(DeviceFailure, ADeviceThatIsNotDoneInTime) {
  if (goes_through_host()) {
    GTEST_SKIP() << "no call waits for another rank's device";
  }
  on_gpus_that_shut([](Rank& rank, const BufferView& own) {
    if (rank.context.rank() == rank.context.size() - 1) {
      rank.gpu.shut(rank.gpu.stream());
    }
    const Work work = ops::allreduce_nonblocking(rank.context, own);
    work.wait();
    const auto deadline = Deadline::after(3 * kTimeout);
    while (!rank.context.core().device()->failure() && !deadline.expired()) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_FALSE(deadline.expired());
    try {
      work.synchronize();
      ADD_FAILURE() << "expected an exception";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("launched, and not done on the device after"));
    } catch (const PeerFailure& error) {
      EXPECT_THAT(error.what(), HasSubstr("launched"));
    }
    meet(rank.context);
    rank.gpu.open();
    EXPECT_THAT(error_of<StateError>([&] { ops::allreduce(rank.context, own); }),
                HasSubstr("this context makes no calls on CUDA device"));
  });
}

TEST_P(DeviceFailure, ADeviceThatGivesNothing) {
  if (!goes_through_host()) {
    GTEST_SKIP() << "no host waits for a device";
  }
  on_gpus_that_shut([](Rank& rank, const BufferView& own) {
    rank.gpu.shut(rank.gpu.stream());
    try {
      ops::allreduce(rank.context, own);
      ADD_FAILURE() << "expected an exception";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("the device has not given its values"));
    } catch (const PeerFailure&) {  // NOLINT: another one has given up before
    }
    meet(rank.context);
    rank.gpu.open();
    rank.gpu.synchronize();
    meet(rank.context);
    expect_device_usable(rank);
  });
}

}  // namespace
}  // namespace bluefog::testing
