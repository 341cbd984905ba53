#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

/// The traits that calls on a device share, whichever way they go.
namespace bluefog::testing {

/// A test that runs over each link between devices.
class OverLinks : public ::testing::TestWithParam<Reach> {
 protected:
  void on_links(DeviceRanks ranks, const std::function<void(DeviceRank&)>& body) {
    ranks.reach = GetParam();
    on_device_ranks(ranks, body);
  }
  [[nodiscard]] bool is_nccl() const { return GetParam() == Reach::Nccl; }
};

inline std::string link_name(const ::testing::TestParamInfo<Reach>& info) {
  return info.param == Reach::Nccl            ? "Nccl"
         : info.param == Reach::PeerProcesses ? "PeerProcesses"
         : info.param == Reach::PeerThreads   ? "PeerThreads"
                                              : "Host";
}

/// All tests of `suite`, over all links.
#define BF_OVER_LINKS(suite)                                                                  \
  INSTANTIATE_TEST_SUITE_P(                                                                   \
      Links, suite, ::testing::Values(Reach::Nccl, Reach::PeerProcesses, Reach::PeerThreads), \
      link_name)

/// The device can still be used: a call gives the right result.
inline void expect_device_usable(DeviceRank& rank) {
  const BufferView own = rank.upload(small_integers(Dtype::Float32, 9, 0));
  ops::allreduce(rank.context, own);
  EXPECT_EQ(rank.download(own), small_integers(Dtype::Float32, 9, 0));
}

/// After this nothing comes from the device any more, and the CPU goes on.
inline void expect_ended(DeviceRank& rank, const std::string& reason) {
  const BufferView own = rank.upload(small_integers(Dtype::Float32, 5, 0));
  EXPECT_THAT(error_of<StateError>([&] { ops::allreduce(rank.context, own); }),
              ::testing::AllOf(::testing::HasSubstr("this context makes no calls on CUDA device"),
                               ::testing::HasSubstr(reason)));
}

inline std::shared_ptr<const NeighborPlan> ring_plan(const Context& context) {
  return std::make_shared<const NeighborPlan>(
      topology::ring(context.size()).plan_for(context.rank()));
}

/// Calls of several sizes on several streams, waited for in reverse order, give the CPU's bits.
inline void several_under_way(DeviceRank& rank, const ops::NeighborAllreduceOptions& options = {}) {
  const auto plan = std::make_shared<const NeighborPlan>(
      topology::exponential(rank.context.size()).plan_for(rank.context.rank()));
  std::vector<Values> expected;
  std::vector<BufferView> buffers;
  std::vector<Work> work;
  for (int i = 0; i < 12; ++i) {
    const auto count = static_cast<std::size_t>(1 + 137 * i);
    Values values = thirds(Dtype::Float32, count, rank.context.rank() + i);
    buffers.push_back(rank.upload(values, i % 3 == 0 ? rank.cuda.make_stream() : rank.stream));
    work.push_back(
        ops::neighbor_allreduce_nonblocking(rank.context, buffers.back(), plan, options));
    ops::neighbor_allreduce(rank.context, values.view(), plan);
    expected.push_back(std::move(values));
  }
  for (std::size_t i = work.size(); i-- > 0;) {
    work[i].wait();
    ASSERT_EQ(rank.download(buffers[i]), expected[i]) << i;
  }
}

}  // namespace bluefog::testing
