#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "ops/collectives.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/support/ranks.hpp"
#include "topology/static_graphs.hpp"

/// Support for tests of calls on GPUs by each way. Ranks share GPUs if there are too few.
namespace bluefog::testing {

using Plan = std::shared_ptr<const NeighborPlan>;

inline Plan plan_of(const Context& context, const MixingMatrix& w) {
  return std::make_shared<const NeighborPlan>(w.plan_for(context.rank()));
}

/// One rank of a run, whose context uses a GPU.
struct Rank {
  Context& context;
  Gpu gpu;
};

struct WayRanks {
  int at_least = 1;
  int at_most = 4;
  std::chrono::seconds timeout{60};
  /// The value of `Settings::nodes_per_machine`.
  int nodes_per_machine = 0;
};

/// A test that runs by each way of calls.
class OverWays : public ::testing::TestWithParam<DeviceWay> {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) {
      GTEST_SKIP() << why_no_gpu();
    }
  }

  [[nodiscard]] static bool goes_through_host() { return GetParam() == DeviceWay::Host; }

  /// Runs `body` as every rank, if the way serves them.
  void on_gpus(const WayRanks& wanted, const std::function<void(Rank&)>& body) {
    const auto way = GetParam();
    const Ranks ranks{.at_least = wanted.at_least,
                      .at_most = wanted.at_most,
                      .layouts = {Layout::OneHost},
                      .settings = [&](Settings& settings, int /*rank*/) {
                        settings.device_way = way == DeviceWay::Nccl   ? DeviceWayChoice::Nccl
                                              : way == DeviceWay::Peer ? DeviceWayChoice::Peer
                                                                       : DeviceWayChoice::Host;
                        settings.timeout = wanted.timeout;
                        settings.nodes_per_machine = wanted.nodes_per_machine;
                      }};
    on_ranks(ranks, [&](Context& context) {
      Rank rank{.context = context, .gpu = Gpu(context.rank())};
      context.use_device(rank.gpu.device());
      if (context.core().device()->way_of(OpKind::Allreduce) != way) {
        was_refused_ = true;
        return;
      }
      body(rank);
    });
    if (was_refused_) {
      GTEST_SKIP() << "the way does not serve these ranks: the log says why";
    }
  }
  void on_gpus(const std::function<void(Rank&)>& body) { on_gpus({}, body); }

 private:
  std::atomic<bool> was_refused_{false};
};

inline std::string way_name(const ::testing::TestParamInfo<DeviceWay>& info) {
  return info.param == DeviceWay::Nccl ? "Nccl" : info.param == DeviceWay::Peer ? "Peer" : "Host";
}

/// All tests of `suite`, by all ways.
#define BF_OVER_WAYS(suite) \
  INSTANTIATE_TEST_SUITE_P( \
      Ways, suite, ::testing::Values(DeviceWay::Nccl, DeviceWay::Peer, DeviceWay::Host), way_name)

/// Expects that a device can still be used: a call gives the right result.
inline void expect_device_usable(Rank& rank) {
  Values expected = thirds(Dtype::Float32, 9, rank.context.rank());
  const BufferView own = rank.gpu.upload(expected);
  ops::allreduce(rank.context, own);
  ops::allreduce(rank.context, expected.view());
  EXPECT_EQ(rank.gpu.download(own), expected);
}

}  // namespace bluefog::testing
