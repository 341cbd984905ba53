#include "tools/bfrun/job/own/left_out.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bluefog::bfrun {
namespace {

using namespace std::chrono_literals;

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LeftOut, RanksHaveAWhileToEndByThemselves) {
  const auto begin = LeftOut::Clock::now();
  LeftOut ranks;
  EXPECT_LT(ranks.time_left(begin), 0ms);
  ranks.take(1, begin);
  ranks.take(2, begin + 1s);
  ranks.take(3, begin);
  ranks.take(1, begin + 2s);  // as others say, too
  EXPECT_EQ(ranks.time_left(begin + 1s), LeftOut::kGrace - 1s);
  EXPECT_THAT(ranks.overdue(begin + LeftOut::kGrace - 1ms), IsEmpty());
  ranks.forget(3);
  EXPECT_THAT(ranks.overdue(begin + LeftOut::kGrace), ElementsAre(1));
  EXPECT_THAT(ranks.overdue(begin + LeftOut::kGrace), IsEmpty());
  EXPECT_EQ(ranks.time_left(begin + LeftOut::kGrace), 1s);
}

}  // namespace
}  // namespace bluefog::bfrun
