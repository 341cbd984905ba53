// NCCL, as far as the stand-in tells: its interface, and how links end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "bluefog_cpp/device/cuda/handles.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "tests/support/gpu/nccl_stand_in.hpp"

namespace bluefog::testing {
namespace {

/// Rank 1 is gone, with a send to it under way: the others end it, and go on among themselves.
TEST(NcclInterface, ShrinksToTheRanksThatAreLeft) {
  constexpr int kRanks = 3;
  const auto cuda = std::make_shared<CudaStandIn>(kRanks);
  NcclStandIn nccl(cuda);
  const gpu::NcclId id = nccl.make_id();
  const auto as_rank = [&](int rank) {
    const gpu::DeviceScope scope(*cuda, rank);
    const gpu::CommHandle comm = nccl.init(kRanks, id, rank);
    if (rank == 1) {
      nccl.destroy(comm);
      return;
    }
    const gpu::StreamHandle stream = cuda->make_stream();
    auto* const memory = static_cast<std::byte*>(cuda->allocate(2));
    const auto exchange = [&](gpu::CommHandle with, int peer) {
      nccl.group_start();
      nccl.send(memory, 1, peer, with, stream);
      nccl.receive(memory + 1, 1, peer, with, stream);
      nccl.group_end();
    };
    cuda->enqueue(stream, "fill", {{memory, 2, true}}, [=] {
      memory[0] = static_cast<std::byte>(10 + rank);
      memory[1] = std::byte{0};
    });
    exchange(comm, 1);
    nccl.revoke(comm);
    cuda->synchronize(stream);
    const std::array gone{1};
    const gpu::CommHandle shrunk = nccl.shrink(comm, gone);
    exchange(shrunk, rank == 0 ? 1 : 0);  // rank 2 has become rank 1
    cuda->synchronize(stream);
    EXPECT_EQ(static_cast<int>(memory[1]), rank == 0 ? 12 : 10);
    nccl.destroy(shrunk);
    nccl.destroy(comm);
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back(as_rank, rank);
    }
  }
  EXPECT_THAT(cuda->mistakes(), ::testing::IsEmpty());
}

/// NCCL's communicators end together: who leaves first waits for the others a moment at most, and
/// so they may still wait for it elsewhere.
TEST(DeviceEnd, WhoLeavesFirstDoesNotWaitForTheOthers) {
  on_device_ranks({.at_least = 2, .at_most = 3, .expect_usable = false}, [](DeviceRank& rank) {
    expect_device_usable(rank);
    meet(rank.context);
    if (rank.context.rank() == 0) {
      rank.context.close();
    }
    meet(rank.context);  // the others have not closed theirs
  });
}

}  // namespace
}  // namespace bluefog::testing
