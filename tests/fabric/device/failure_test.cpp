// Wrong use of devices, calls that do not match, and what NCCL and devices do to calls under way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"
#include "ops/calls/validation.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
std::function<void(Settings&)> timeout_of(std::chrono::nanoseconds time) {
  return [time](Settings& settings) { settings.timeout = time; };
}

class DeviceErrors : public OverLinks {};
BF_OVER_LINKS(DeviceErrors);

TEST_P(DeviceErrors, BuffersElsewhere) {
  on_links({.at_least = 2, .at_most = 3}, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const Plan plan = ring(rank.context);
    BufferView buffer = rank.upload(small_integers(Dtype::Float32, 4, own));
    BufferView elsewhere = buffer;
    elsewhere.device.index = own + 5;
    Values on_cpu = small_integers(Dtype::Float32, 4, own);
    EXPECT_THAT(error_of<InvalidArgument>([&] { ops::allreduce(rank.context, elsewhere); }),
                AllOf(HasSubstr("rank " + std::to_string(own) +
                                ", allreduce: expected a buffer on the "
                                "CPU or on CUDA device " +
                                std::to_string(own)),
                      HasSubstr("found one on CUDA device " + std::to_string(own + 5))));
    EXPECT_THAT(error_of<InvalidArgument>(
                    [&] { ops::neighbor_allreduce(rank.context, on_cpu.view(), buffer, plan); }),
                HasSubstr("expected input and output on the same device, found them on the CPU and "
                          "CUDA device " +
                          std::to_string(own)));
    if (own < 2) {
      EXPECT_THAT(error_of<InvalidArgument>(
                      [&] { ops::pair_gossip(rank.context, elsewhere, (own + 1) % 2); }),
                  HasSubstr("pair_gossip: expected a buffer on the CPU or on CUDA device"));
    }
    ops::barrier(rank.context);
    expect_device_usable(rank);
  });
}

TEST(DeviceErrors, BeforeUseDevice) {
  on_ranks({.at_most = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    float value = 1.0F;
    const BufferView buffer{.data = &value, .count = 1, .device = {DeviceKind::Cuda, 3}};
    EXPECT_THAT(
        error_of<InvalidArgument>([&] { ops::broadcast(context, buffer, 0); }),
        HasSubstr("broadcast: expected a buffer on the CPU, or Context::use_device before this "
                  "call, found a buffer on CUDA device 3"));
  });
}

TEST(DeviceErrors, MoreOperandsThanAKernelTakes) {
  on_device_ranks({.at_most = 1}, [](DeviceRank& rank) {
    const BufferView buffer = rank.upload(small_integers(Dtype::Float32, 4, 0));
    ops::check_operands(rank.context, OpKind::Allreduce, buffer, 240);
    EXPECT_THAT(error_of<UnsupportedError>(
                    [&] { ops::check_operands(rank.context, OpKind::Allreduce, buffer, 241); }),
                HasSubstr("allreduce: expected at most 240 values to add up on a GPU"));
  });
}

class DeviceMismatch : public OverLinks {};
BF_OVER_LINKS(DeviceMismatch);

TEST_P(DeviceMismatch, CountsThatDiffer) {
  on_links({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const std::size_t count = rank.context.rank() == 0 ? 10 : 11;
    const BufferView own = rank.upload(small_integers(Dtype::Float32, count, 0));
    EXPECT_THAT(error_of<MismatchError>([&] {
                  ops::neighbor_allreduce(rank.context, own, ring(rank.context));
                  ops::barrier(rank.context);  // at the latest
                }),
                AllOf(HasSubstr("neighbor_allreduce(float32[10] on CUDA)"),
                      HasSubstr("neighbor_allreduce(float32[11] on CUDA)")));
    EXPECT_EQ(rank.download(own), small_integers(Dtype::Float32, count, 0));
    meet(rank.context);
    expect_device_usable(rank);
  });
}

TEST_P(DeviceMismatch, OneRankOnTheCpu) {
  on_links({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    Values on_cpu = small_integers(Dtype::Float32, 6, 0);
    const BufferView buffer = rank.context.rank() == 0 ? rank.upload(on_cpu) : on_cpu.view();
    EXPECT_THAT(error_of<MismatchError>([&] {
                  ops::neighbor_allreduce(rank.context, buffer, ring(rank.context));
                  ops::barrier(rank.context);
                }),
                // What the other rank shows of itself may be seen before its message.
                AllOf(HasSubstr("neighbor_allreduce(float32[6]"),
                      AnyOf(HasSubstr("neighbor_allreduce(float32[6] on CUDA)"),
                            HasSubstr("makes this call as neighbor_allreduce on CUDA"),
                            HasSubstr("makes this call as neighbor_allreduce on the CPU"))));
    meet(rank.context);
    expect_device_usable(rank);
  });
}

/// Both hear each other in the plans of the one, only one way in the other's.
TEST_P(DeviceMismatch, EdgesThatOneEndKnowsOf) {
  on_links({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    NeighborPlan plan = topology::ring(2).plan_for(rank.context.rank());
    if (rank.context.rank() == 1) {
      plan.destinations.clear();
    }
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    EXPECT_THAT(
        error_of<MismatchError>([&] { ops::neighbor_allreduce(rank.context, own, share(plan)); }),
        AllOf(HasSubstr("senders and receivers do not match"), HasSubstr("which expects")));
    meet(rank.context);
    expect_device_usable(rank);
    EXPECT_THAT(error_of<MismatchError>([&] {
                  ops::neighbor_allreduce(rank.context, own, share(plan),
                                          {.check = ops::PlanCheck::Checked});
                }),
                HasSubstr("rank"));
    meet(rank.context);
    expect_device_usable(rank);
  });
}

TEST_P(DeviceMismatch, ARefusalReachesTheOthers) {
  on_links({.at_least = 2}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    if (rank.context.rank() == 0) {
      BufferView wrong = own;
      wrong.device.index = 77;
      EXPECT_THROW(ops::allreduce(rank.context, wrong), InvalidArgument);
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { ops::allreduce(rank.context, own); }),
                  AllOf(HasSubstr("rank 0 ended this call with an error"),
                        HasSubstr("found one on CUDA device 77")));
    }
    meet(rank.context);
    expect_device_usable(rank);
  });
}

TEST_P(DeviceMismatch, ARankThatDoesNotCome) {
  on_links({.at_least = 2, .at_most = 2, .settings = timeout_of(std::chrono::seconds(1))},
           [](DeviceRank& rank) {
             const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
             if (rank.context.rank() == 0) {
               EXPECT_THAT(error_of<TimeoutError>([&] { ops::allreduce(rank.context, own); }),
                           HasSubstr("no message from rank 1"));
             }
             meet(rank.context);
             if (rank.context.rank() == 1) {
               EXPECT_THROW(ops::allreduce(rank.context, own), PeerFailure);
             }
             meet(rank.context);
             expect_device_usable(rank);
           });
}

TEST(DeviceFailure, NcclReportsAnError) {
  on_device_ranks({.at_least = 2, .at_most = 3}, [](DeviceRank& rank) {
    rank.shut(rank.stream);
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    const Work work = ops::allreduce_nonblocking(rank.context, own);
    work.wait();
    meet(rank.context);
    rank.nccl.set_async_error(rank.context.rank(), "the network is gone");
    while (rank.cuda.counts()["ncclCommAbort"] < rank.context.size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    rank.open();
    EXPECT_THAT(
        error_of<Error>([&] { work.synchronize(); }),  // NCCL's, or of a rank that was first
        AllOf(HasSubstr("allreduce(float32[5] on CUDA): NCCL reports: the network is gone")));
    expect_ended(rank, "the network is gone");
  });
}

class DeviceFailure : public OverLinks {};
BF_OVER_LINKS(DeviceFailure);

TEST_P(DeviceFailure, NotDoneInTime) {
  on_links({.at_least = 2, .at_most = 2, .settings = timeout_of(std::chrono::seconds(1))},
           [](DeviceRank& rank) {
             rank.shut(rank.stream);
             const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
             const Work work = ops::allreduce_nonblocking(rank.context, own);
             work.wait();
             while (!rank.context.core().device()->failure()) {
               std::this_thread::sleep_for(std::chrono::milliseconds(1));
             }
             meet(rank.context);
             rank.open();
             EXPECT_THAT(error_of<Error>([&] { work.synchronize(); }),
                         HasSubstr("launched, and not done on the device after 1.0 s"));
             expect_ended(rank, "launched, and not done");
           });
}

/// On a path 0 – 1 – 2, rank 2 refuses: rank 1 never launches, and rank 0, which had agreed with it
/// and may have launched, is told. The payload that rank 1 has offered comes, and nothing ends.
TEST_P(DeviceFailure, ANeighborsNeighborRefuses) {
  on_links({.at_least = 3, .at_most = 3}, [is_offered = !is_nccl()](DeviceRank& rank) {
    const int own = rank.context.rank();
    NeighborPlan plan = NeighborPlan::alone(own, 3);
    for (const int other : {own - 1, own + 1}) {
      if (other >= 0 && other < 3) {
        plan.sources.push_back({other, 0.25});
        plan.destinations.push_back({other, 1.0});
      }
    }
    BufferView buffer = rank.upload(small_integers(Dtype::Float32, 5, 0));
    const auto step = [&] {
      ops::neighbor_allreduce_nonblocking(rank.context, buffer, share(plan)).synchronize();
    };
    if (own == 2) {
      // Not before rank 0 has launched: then only an abort brings it back.
      const auto* const launched = is_offered ? "bluefog_weighted_sum_float32" : "nccl group";
      while (rank.cuda.counts()[launched] == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      buffer.device.index = 7;
      EXPECT_THROW(step(), InvalidArgument);
    } else if (own == 0 && is_offered) {
      step();
    } else {
      EXPECT_THAT(error_of<PeerFailure>(step), HasSubstr("CUDA device 7"));
    }
    meet(rank.context);
    buffer.device.index = own;
    if (is_offered) {
      expect_device_usable(rank);
    } else if (own == 0) {
      expect_ended(rank, "launched, and rank 1 ended it with an error");
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { ops::allreduce(rank.context, buffer); }),
                  HasSubstr("rank 0, allreduce: this context makes no calls on CUDA device 0"));
    }
  });
}

TEST_P(DeviceFailure, ACallOfCudaThatFails) {
  on_links({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    if (rank.context.rank() == 0) {
      rank.cuda.fail_next("cuEventRecord", 0, 700);
      EXPECT_THAT(error_of<CudaError>([&] { ops::allreduce(rank.context, own); }),
                  HasSubstr("cuEventRecord: an injected error"));
    } else {
      EXPECT_THROW(ops::allreduce(rank.context, own), PeerFailure);
    }
    meet(rank.context);
    expect_device_usable(rank);  // it failed before anything was agreed on
  });
}

/// The work is dropped and the context closed while the device is at it: the device ends first.
TEST_P(DeviceFailure, ClosingWaitsForWhatOthersNeed) {
  on_links({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5000, 0));
    (void)ops::allreduce_nonblocking(rank.context, own);
  });
}

class UseDevice : public ::testing::Test {
 protected:
  void SetUp() override { libraries_ = {.cuda = cuda_, .nccl = nccl_}; }

  std::shared_ptr<CudaStandIn> cuda_ = std::make_shared<CudaStandIn>(2);
  std::shared_ptr<NcclStandIn> nccl_ = std::make_shared<NcclStandIn>(cuda_);
  gpu::Libraries libraries_;
  Ranks two_{.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}};
};

TEST_F(UseDevice, ADeviceThatIsNotThere) {
  on_ranks(two_, [&](Context& context) {
    if (context.rank() == 0) {
      EXPECT_THAT(error_of<InvalidArgument>([&] { context.core().use_device(2, &libraries_); }),
                  HasSubstr("rank 0, use_device: expected a device in 0 to 1, found 2"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { context.core().use_device(1, &libraries_); }),
                  HasSubstr("rank 1, use_device: rank 0 could not: "));
    }
    EXPECT_EQ(context.core().device(), nullptr);
    context.core().use_device(context.rank(), &libraries_);
    EXPECT_THAT(error_of<StateError>([&] { context.core().use_device(0, &libraries_); }),
                HasSubstr("this context has a device already"));
  });
}

/// Calls then go by copies between the devices, or through the host.
TEST_F(UseDevice, NcclThatRefuses) {
  for (const DeviceWay way : {DeviceWay::Peer, DeviceWay::Host}) {
    cuda_->fail_next("ncclCommInitRank", 0, 5);
    cuda_->fail_next("ncclCommInitRank", 1, 5);
    auto ranks = two_;
    ranks.settings = [&](Settings& settings, int) {
      settings.log_level = LogLevel::Error;
      settings.device_way = way == DeviceWay::Peer ? DeviceWayChoice::Auto : DeviceWayChoice::Nccl;
    };
    on_ranks(ranks, [&](Context& context) {
      context.core().use_device(context.rank(), &libraries_);
      EXPECT_EQ(context.core().device()->way_of(OpKind::Allreduce), way);
    });
  }
}

TEST_F(UseDevice, WithoutTheOthers) {
  auto ranks = two_;
  ranks.settings = [](Settings& settings, int) { settings.timeout = std::chrono::seconds(1); };
  on_ranks(ranks, [&](Context& context) {
    if (context.rank() == 0) {
      EXPECT_THAT(error_of<TimeoutError>([&] { context.core().use_device(0, &libraries_); }),
                  HasSubstr("use_device"));
    }
    meet(context);
    if (context.rank() == 1) {
      EXPECT_THAT(error_of<MismatchError>([&] { ops::barrier(context); }),
                  HasSubstr("rank 0 called use_device, rank 1 called barrier"));
    }
    meet(context);
  });
}

/// The GPU and NCCL of this machine, or words that say what is missing.
TEST_F(UseDevice, OfThisMachine) {
  on_ranks({.at_most = 1, .layouts = {Layout::OneHost}}, [&](Context& context) {
    try {
      context.use_device(0);
    } catch (const UnsupportedError& error) {
      EXPECT_THAT(error.what(), AnyOf(HasSubstr("libcuda"), HasSubstr("this build has no"),
                                      HasSubstr("libnccl")));
    } catch (const CudaError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cu"));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
