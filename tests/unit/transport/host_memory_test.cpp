#include "bluefog_cpp/transport/shm/host_memory.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/transport/thread_bootstrap.hpp"

namespace bluefog::shm {
namespace {

TEST(HostMemory, GivesBlocksOutAgain) {
  const auto bootstraps = make_thread_bootstraps(1);
  const auto memory =
      HostMemory::connect(*bootstraps.front(), {std::string("host")}, Deadline::never());
  EXPECT_TRUE(memory->reaches(0));
  EXPECT_FALSE(memory->reaches(1));
  const std::size_t a = memory->allocate(10'000);
  const std::size_t b = memory->allocate(1);
  const std::size_t c = memory->allocate(5000);
  EXPECT_EQ(b - a, 12'288U);  // whole pages
  memory->base_of(0)[c + 4999] = std::byte{1};
  memory->release(a);
  EXPECT_EQ(memory->allocate(4096), a);
  EXPECT_EQ(memory->allocate(8192), a + 4096);
  memory->release(a);
  memory->release(b);
  memory->release(a + 4096);  // joins with both neighbours
  EXPECT_EQ(memory->allocate(16'384), a);
  memory->release(12'345);  // never given out: ignored
  EXPECT_GT(memory->allocate(1), c);
}

}  // namespace
}  // namespace bluefog::shm
