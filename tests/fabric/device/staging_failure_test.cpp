// Failures of calls with buffers on a device that go through the host's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

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

TEST(StagedErrors, BuffersElsewhere) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = 2;
  ranks.at_most = 3;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    BufferView elsewhere = rank.upload(small_integers(Dtype::Float32, 4, own));
    elsewhere.device.index = own + 5;
    EXPECT_THAT(error_of<InvalidArgument>([&] { ops::allreduce(rank.context, elsewhere); }),
                HasSubstr("found one on CUDA device " + std::to_string(own + 5)));
    const BufferView buffer = rank.upload(small_integers(Dtype::Float32, 4, own));
    Values room(Dtype::Float32, 4 * static_cast<std::size_t>(rank.context.size()));
    EXPECT_THAT(error_of<Error>([&] {
                  ops::allgather(rank.context, buffer,
                                 [&](const std::vector<std::int64_t>&) { return room.view(); });
                }),
                HasSubstr("allocation callback"));
    meet(rank.context);
    ops::allreduce(rank.context, buffer);
  });
}

/// A copy that cannot be started is a refusal; one that fails later ends the call.
TEST(StagedErrors, CopiesThatFail) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = 2;
  ranks.at_most = 3;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    for (const char* const call : {"cuMemcpyAsync", "cuMemHostAlloc", "cuEventQuery"}) {
      const BufferView own = rank.upload(small_integers(Dtype::Float32, 9000, 0));
      meet(rank.context);
      if (rank.context.rank() == 0) {
        rank.cuda.fail_next(call, 0, 700);
        if (std::string_view(call) == "cuMemHostAlloc") {
          // Asked again after idle memory was freed.
          ops::allreduce(rank.context, own);
        } else {
          EXPECT_THAT(error_of<CudaError>([&] { ops::allreduce(rank.context, own); }),
                      HasSubstr("an injected error"));
        }
      } else if (std::string_view(call) == "cuMemHostAlloc") {
        ops::allreduce(rank.context, own);
      } else {
        EXPECT_THAT(error_of<PeerFailure>([&] { ops::allreduce(rank.context, own); }),
                    AllOf(HasSubstr("rank 0"), HasSubstr("an injected error")));
      }
      meet(rank.context);
      expect_device_usable(rank);
    }
  });
}

TEST(StagedErrors, ADeviceThatGivesNothing) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = ranks.at_most = 2;
  ranks.settings = [](Settings& settings) { settings.timeout = std::chrono::seconds(1); };
  on_device_ranks(ranks, [](DeviceRank& rank) {
    rank.shut(rank.stream);
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
    EXPECT_THAT(error_of<TimeoutError>([&] { ops::allreduce(rank.context, own); }),
                HasSubstr("the device has not given its values"));
    meet(rank.context);
    rank.open();
    rank.cuda.synchronize(rank.stream);
    meet(rank.context);
    expect_device_usable(rank);
  });
}

TEST(StagedErrors, CallsThatDoNotMatchLeaveTheBufferAlone) {
  DeviceRanks ranks = without_nccl();
  ranks.at_least = ranks.at_most = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const std::size_t count = rank.context.rank() == 0 ? 10 : 11;
    const Values input = small_integers(Dtype::Float32, count, 0);
    const BufferView own = rank.upload(input);
    EXPECT_THAT(error_of<MismatchError>([&] {
                  ops::neighbor_allreduce(rank.context, own,
                                          std::make_shared<const NeighborPlan>(
                                              topology::ring(2).plan_for(rank.context.rank())));
                  ops::barrier(rank.context);  // at the latest
                }),
                AllOf(HasSubstr("float32[10]"), HasSubstr("float32[11]")));
    EXPECT_EQ(rank.download(own), input);
    meet(rank.context);
  });
}

}  // namespace
}  // namespace bluefog::testing
