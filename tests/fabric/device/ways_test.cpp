// The ways of calls on devices, over the stand-ins: which one a context comes to, and what rank 0
// says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "tests/support/gpu/cuda_process.hpp"
#include "tests/support/gpu/nccl_stand_in.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Contexts of two ranks.
class DeviceWays : public ::testing::Test {
 protected:
  struct Outcome {
    DeviceWay way{};
    std::string log{};
  };

  /// The ranks are processes with a device each, or threads that share one.
  enum class RanksAre { Processes, ThreadsOnOneDevice };

  Outcome choose(DeviceWayChoice choice, bool has_nccl = false, Layout layout = Layout::OneHost,
                 RanksAre are = RanksAre::Processes) {
    Outcome outcome;
    ::testing::internal::CaptureStderr();
    const Ranks ranks{.at_least = 2,
                      .at_most = 2,
                      .layouts = {layout},
                      .settings = [choice](Settings& settings, int) {
                        settings.device_way = choice;
                        settings.log_level = LogLevel::Info;
                      }};
    on_ranks(ranks, [&](Context& context) {
      gpu::Libraries libraries{.cuda = cuda_, .nccl = has_nccl ? nccl_ : nullptr};
      if (are == RanksAre::Processes) {
        libraries.cuda = std::make_shared<CudaProcess>(cuda_, context.rank() + 1);
      }
      context.core().use_device(are == RanksAre::Processes ? context.rank() : 0, &libraries);
      if (context.rank() == 0) {
        outcome.way = context.core().device()->way_of(OpKind::Allreduce);
      }
    });
    outcome.log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(cuda_->mistakes(), IsEmpty());
    return outcome;
  }

  std::shared_ptr<CudaStandIn> cuda_ = std::make_shared<CudaStandIn>(2);
  std::shared_ptr<NcclStandIn> nccl_ = std::make_shared<NcclStandIn>(cuda_);
};

TEST_F(DeviceWays, NcclBeforeCopiesBeforeTheHost) {
  const Outcome nccl = choose(DeviceWayChoice::Auto, true);
  EXPECT_EQ(nccl.way, DeviceWay::Nccl);
  EXPECT_THAT(nccl.log, HasSubstr("[info] calls on CUDA devices go by NCCL\n"));
  const Outcome peer = choose(DeviceWayChoice::Auto);
  EXPECT_EQ(peer.way, DeviceWay::Peer);
  EXPECT_THAT(peer.log,
              HasSubstr("[warning] calls on CUDA devices go from device to device by CUDA "
                        "IPC: not by NCCL: rank 0: there is no NCCL\n"));
  const Outcome host = choose(DeviceWayChoice::Auto, false, Layout::TwoHosts);
  EXPECT_EQ(host.way, DeviceWay::Host);
  EXPECT_THAT(
      host.log,
      HasSubstr("[warning] calls on CUDA devices go through the host's memory: not by NCCL: "
                "rank 0: there is no NCCL; not from device to device: the ranks are on 2 "
                "hosts\n"));
}

TEST_F(DeviceWays, AsTheSettingSays) {
  const Outcome peer = choose(DeviceWayChoice::Peer, true);
  EXPECT_EQ(peer.way, DeviceWay::Peer);
  EXPECT_EQ(cuda_->counts()["ncclCommInitRank"], 0);
  EXPECT_THAT(peer.log,
              HasSubstr("[info] calls on CUDA devices go from device to device by CUDA IPC: "
                        "BLUEFOG_DEVICE_WAY is peer\n"));
  const Outcome nccl = choose(DeviceWayChoice::Nccl);
  EXPECT_EQ(nccl.way, DeviceWay::Host);
  EXPECT_THAT(nccl.log, HasSubstr("BLUEFOG_DEVICE_WAY is nccl; not by NCCL: rank 0: there is no"));
  const Outcome host = choose(DeviceWayChoice::Host, true);
  EXPECT_EQ(host.way, DeviceWay::Host);
  EXPECT_THAT(host.log, HasSubstr("[info] calls on CUDA devices go through the host's memory: "
                                  "BLUEFOG_DEVICE_WAY is host\n"));
}

/// What NCCL puts on the device for one of them may wait for what the other has not put there yet.
TEST_F(DeviceWays, NoNcclForThreadsOnOneDevice) {
  const Outcome peer =
      choose(DeviceWayChoice::Auto, true, Layout::OneHost, RanksAre::ThreadsOnOneDevice);
  EXPECT_EQ(peer.way, DeviceWay::Peer);
  EXPECT_EQ(cuda_->counts()["ncclCommInitRank"], 0);
  EXPECT_THAT(peer.log, HasSubstr("not by NCCL: ranks 0 and 1 are threads of one process on one "
                                  "device, where"));
}

/// If one rank's device does not reach another's, no rank goes that way, and nothing stays open.
TEST_F(DeviceWays, WhereCopiesDoNotServe) {
  for (const char* const call : {"cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcOpenEventHandle",
                                 "cuStreamWaitEvent", "cuMemcpyAsync"}) {
    cuda_->fail_next(call, 1, 217);
    const Outcome host = choose(DeviceWayChoice::Auto);
    EXPECT_EQ(host.way, DeviceWay::Host) << call;
    EXPECT_THAT(host.log, HasSubstr(std::string("not from device to device: rank 1: ") + call +
                                    ": an injected error"));
  }
  EXPECT_EQ(choose(DeviceWayChoice::Auto).way, DeviceWay::Peer);
}

}  // namespace
}  // namespace bluefog::testing
