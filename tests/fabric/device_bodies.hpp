#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

/// What calls on a device have in common, whichever way they go.
namespace bluefog::testing {

/// The device can still be used: a call gives the right result.
inline void expect_device_usable(DeviceRank& rank) {
  const BufferView own = rank.upload(small_integers(Dtype::Float32, 9, 0));
  ops::allreduce(rank.context, own);
  EXPECT_EQ(rank.download(own), small_integers(Dtype::Float32, 9, 0));
}

/// Calls of several sizes on several streams, waited for in reverse order, give the CPU's bits.
inline void several_under_way(DeviceRank& rank) {
  const auto plan = std::make_shared<const NeighborPlan>(
      topology::exponential(rank.context.size()).plan_for(rank.context.rank()));
  std::vector<Values> expected;
  std::vector<BufferView> buffers;
  std::vector<Work> work;
  for (int i = 0; i < 12; ++i) {
    const auto count = static_cast<std::size_t>(1 + 137 * i);
    Values values = thirds(Dtype::Float32, count, rank.context.rank() + i);
    buffers.push_back(rank.upload(values, i % 3 == 0 ? rank.cuda.make_stream() : rank.stream));
    work.push_back(ops::neighbor_allreduce_nonblocking(rank.context, buffers.back(), plan));
    ops::neighbor_allreduce(rank.context, values.view(), plan);
    expected.push_back(std::move(values));
  }
  for (std::size_t i = work.size(); i-- > 0;) {
    work[i].wait();
    ASSERT_EQ(rank.download(buffers[i]), expected[i]) << i;
  }
}

}  // namespace bluefog::testing
