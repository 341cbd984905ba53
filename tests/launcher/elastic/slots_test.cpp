// The slots of a job whose number of ranks changes.
#include "tools/bfrun/elastic/slots.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Slots::NewRank rank_in(int rank, const std::string& host, int index) {
  return {.rank = rank, .slot = {.host = host, .index = index}};
}

constexpr auto kAnybody = [](int /*rank*/) { return true; };

TEST(Slots, AreFilledInTheOrderOfHostsUpToTheMost) {
  Slots slots(4);
  slots.set_hosts({{"localhost", 2}, {"b", 3}});
  EXPECT_THAT(slots.fill(3), ElementsAre(rank_in(0, "localhost", 0), rank_in(1, "localhost", 1),
                                         rank_in(2, "b", 0)));
  EXPECT_THAT(slots.fill(), ElementsAre(rank_in(3, "b", 1)));
  EXPECT_THAT(slots.fill(), IsEmpty());
  EXPECT_EQ(slots.total(), 5);
  EXPECT_EQ(slots.slots_of("b"), 3);
  EXPECT_EQ(slots.slots_of("c"), 0);
}

TEST(Slots, ARankWhoseSlotVanishesLeavesOnceAndKeepsItsNumberUntilItHas) {
  Slots slots(4);
  slots.set_hosts({{"localhost", 3}});
  static_cast<void>(slots.fill());
  slots.set_hosts({{"localhost", 1}});
  EXPECT_THAT(slots.take_leaving(kAnybody), ElementsAre(1, 2));
  EXPECT_THAT(slots.take_leaving(kAnybody), IsEmpty());
  slots.set_hosts({{"localhost", 3}});
  EXPECT_THAT(slots.fill(), IsEmpty());  // both still have theirs
  slots.free(1);
  EXPECT_THAT(slots.fill(), ElementsAre(rank_in(1, "localhost", 1)));
  EXPECT_EQ(slots.host_of(2), "localhost");
}

TEST(Slots, ThoseThatLeaveCountAmongTheMost) {
  Slots slots(2);
  slots.set_hosts({{"a", 2}});
  static_cast<void>(slots.fill());
  slots.set_hosts({{"b", 2}});
  EXPECT_THAT(slots.take_leaving(kAnybody), ElementsAre(0, 1));
  EXPECT_THAT(slots.fill(), IsEmpty());
  slots.free(0);
  EXPECT_THAT(slots.fill(), ElementsAre(rank_in(0, "b", 0)));
}

TEST(Slots, ARankThatMayNotLeaveIsAskedForAgain) {
  Slots slots(2);
  slots.set_hosts({{"a", 2}});
  static_cast<void>(slots.fill());
  slots.set_hosts({{"b", 2}});
  EXPECT_THAT(slots.take_leaving([](int rank) { return rank == 1; }), ElementsAre(1));
  EXPECT_THAT(slots.take_leaving(kAnybody), ElementsAre(0));
}

TEST(Slots, ASpoiltSlotIsFilledOnlyAfterItHasVanished) {
  Slots slots(3);
  slots.set_hosts({{"localhost", 3}});
  static_cast<void>(slots.fill());
  slots.spoil(1);
  EXPECT_EQ(slots.occupied(), 2);
  EXPECT_THAT(slots.fill(), IsEmpty());
  slots.set_hosts({{"localhost", 4}});
  EXPECT_THAT(slots.fill(), ElementsAre(rank_in(3, "localhost", 3)));  // another one is free
  slots.free(3);
  slots.set_hosts({{"localhost", 1}});
  EXPECT_THAT(slots.take_leaving(kAnybody), ElementsAre(2));
  slots.free(2);
  slots.set_hosts({{"localhost", 3}});
  EXPECT_THAT(slots.fill(), ElementsAre(rank_in(1, "localhost", 1), rank_in(2, "localhost", 2)));
}

}  // namespace
}  // namespace bluefog::bfrun
