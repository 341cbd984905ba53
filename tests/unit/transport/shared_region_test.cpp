#include "bluefog_cpp/transport/shm/shared_region.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/shared_addresses.hpp"

namespace bluefog::shm {
namespace {

using bluefog::testing::error_of;
using bluefog::testing::shared_addresses;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

/// A region as its owner and as another rank has it, by mappings of their own.
struct TwoSides {
  std::shared_ptr<HostArena> arena = HostArena::create();
  std::unique_ptr<SegmentTable> table = std::make_unique<SegmentTable>();
  SharedRegion own{arena, *table};
  SharedRegion theirs{arena, *table};
};

TEST(SharedRegion, AddressesFollowUse) {
  const std::size_t before = shared_addresses();
  TwoSides sides;
  EXPECT_LE(shared_addresses() - before, kMiB);
  (void)sides.own.take(100);
  EXPECT_LE(shared_addresses() - before, 2 * kMiB);
  std::size_t used = 0;
  for (int i = 0; i < 40; ++i) {
    (void)sides.own.take(kMiB);
    used += kMiB;
    EXPECT_LE(shared_addresses() - before, used + used / 2 + 3 * kMiB);
  }
  const std::size_t with_own = shared_addresses();
  const std::uint64_t large = sides.own.take(64 * kMiB);
  EXPECT_LE(shared_addresses() - with_own, 65 * kMiB);
  (void)sides.theirs.at(large, 64 * kMiB);
  EXPECT_LE(shared_addresses() - with_own, 129 * kMiB) << "only the segment that was looked at";
}

TEST(SharedRegion, PointersStayValidAndPlacesMeanTheSame) {
  TwoSides sides;
  std::vector<std::pair<std::uint64_t, std::byte*>> blocks;
  for (std::size_t i = 0; i < 60; ++i) {
    const std::uint64_t place = sides.own.take(kMiB / 4 * (i % 7 + 1));
    std::byte* const data = sides.own.at(place, 1);
    EXPECT_EQ(data[0], std::byte{0});
    data[0] = static_cast<std::byte>(i);
    blocks.emplace_back(place, data);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [place, data] = blocks[i];
    EXPECT_EQ(data[0], static_cast<std::byte>(i));
    EXPECT_EQ(sides.own.at(place, 1), data);
    EXPECT_EQ(sides.own.place_of(data, 1), place);
    EXPECT_EQ(sides.theirs.at(place, 1)[0], static_cast<std::byte>(i));
    EXPECT_NE(sides.theirs.at(place, 1), data);
  }
  EXPECT_EQ(sides.theirs.first_place(), blocks.front().first);
}

TEST(SharedRegion, RefusesPlacesThatAreNotItsOwn) {
  TwoSides sides;
  EXPECT_EQ(sides.theirs.find(0, 1), nullptr) << "before the first segment";
  const std::uint64_t place = sides.own.take(kMiB);
  EXPECT_NE(sides.theirs.find(place, kMiB), nullptr);
  EXPECT_EQ(sides.theirs.find(place, kMiB + 1), nullptr);
  EXPECT_EQ(sides.theirs.find(place - 1, 1), nullptr);
  EXPECT_EQ(sides.theirs.find(place + kMiB, 1), nullptr);
  EXPECT_EQ(sides.theirs.find(place + 1, ~std::size_t{0}), nullptr);
  EXPECT_FALSE(error_of<InternalError>([&] { (void)sides.theirs.at(0, 1); }).empty());
  const std::byte elsewhere{};
  EXPECT_FALSE(sides.own.place_of(&elsewhere, 1));
  EXPECT_FALSE(sides.own.place_of(sides.own.at(place, 1), kMiB + 1));
}

TEST(SharedRegion, MoreThanTheSystemHasIsAnErrorAndTheRegionGoesOn) {
  TwoSides sides;
  (void)sides.own.take(1);
  EXPECT_FALSE(error_of<TransportError>([&] {
                 (void)sides.own.take(std::size_t{1} << 50U);  // more addresses than there are
               }).empty());
  EXPECT_NE(sides.own.at(sides.own.take(1), 1), nullptr);
}

}  // namespace
}  // namespace bluefog::shm
