// The end of a pool whose memory CUDA would give back only after work that may never end.
#include "bluefog_cpp/device/memory_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tests/support/gpu/cuda_stand_in.hpp"

namespace bluefog::testing {
namespace {

using gpu::MemoryKind;

class PoolsEnd : public ::testing::TestWithParam<MemoryKind> {
 protected:
  /// Calls that give memory back when a pool ends that has a block.
  static int frees(const std::shared_ptr<const std::atomic<bool>>& may_free) {
    const auto cuda = std::make_shared<CudaStandIn>(1);
    {
      const auto pool = std::make_shared<gpu::MemoryPool>(cuda, 0, GetParam(), may_free);
      const gpu::DeviceScope scope(*cuda, 0);
      (void)pool->take(100);
    }
    return cuda->counts()[GetParam() == MemoryKind::Host ? "cuMemFreeHost" : "cuMemFree"];
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, PoolsEnd, ::testing::Values(MemoryKind::Device, MemoryKind::Host));

TEST_P(PoolsEnd, GivesBackWhatItMay) {
  EXPECT_EQ(frees(nullptr), 1);
  EXPECT_EQ(frees(std::make_shared<std::atomic<bool>>(true)), 1);
  EXPECT_EQ(frees(std::make_shared<std::atomic<bool>>(false)), 0);
}

}  // namespace
}  // namespace bluefog::testing
