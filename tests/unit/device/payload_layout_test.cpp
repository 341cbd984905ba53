#include "bluefog_cpp/device/calls/payload_layout.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace bluefog {
namespace {

TEST(PayloadLayout, PayloadsBeginAtMultiplesOfTheDevicesAlignment) {
  PayloadLayout layout;
  EXPECT_EQ(layout.bytes(), 0U);
  EXPECT_EQ(layout.add(1, nullptr), 0U);
  EXPECT_EQ(layout.bytes(), 256U);
  EXPECT_EQ(layout.add(256, nullptr), 256U);
  EXPECT_EQ(layout.add(257, nullptr), 512U);
  EXPECT_EQ(layout.bytes(), 1024U);
}

TEST(PayloadLayout, APayloadLiesToAPackAsTheMemoryThatItIsLike) {
  alignas(kDevicePack) std::array<std::byte, 2 * kDevicePack> memory{};
  PayloadLayout layout;
  EXPECT_EQ(layout.add(256, memory.data() + 4), 4U);
  EXPECT_EQ(layout.bytes(), 512U);
  EXPECT_EQ(layout.add(8, memory.data() + kDevicePack + 12), 524U);
  EXPECT_EQ(layout.bytes(), 768U);
}

}  // namespace
}  // namespace bluefog
