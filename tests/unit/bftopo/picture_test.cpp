#include "tools/bftopo/picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "tools/bftopo/commands.hpp"

namespace bluefog::bftopo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int count_of(std::string_view text, std::string_view part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

std::string drawn(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  return draw_text(options, make_subject(options));
}

TEST(BftopoPicture, MutualEdgesAreDrawnOnce) {
  EXPECT_EQ(edges_of(topology::ring(5)).size(), 5U);
  for (const DrawnEdge& edge : edges_of(topology::ring(5))) {
    EXPECT_TRUE(edge.is_mutual);
  }
  const auto one_way = edges_of(topology::ring(5, topology::RingStyle::Right));
  ASSERT_EQ(one_way.size(), 5U);
  EXPECT_FALSE(one_way[1].is_mutual);
  EXPECT_EQ(one_way[1].from, 1);
  EXPECT_EQ(one_way[1].to, 2);
}

TEST(BftopoPicture, DotNamesRanksAndEdges) {
  const std::string dot = drawn({"draw", "ring-right", "--n", "3"});
  EXPECT_THAT(dot, HasSubstr("digraph \"ring-right 3\""));
  EXPECT_THAT(dot, HasSubstr("r0 -> r1;"));
  EXPECT_THAT(dot, HasSubstr("r2 -> r0;"));
  EXPECT_THAT(drawn({"draw", "ring", "--n", "3"}), HasSubstr("r0 -> r1 [dir=none];"));
}

TEST(BftopoPicture, LostRanksStandAlone) {
  const std::string dot = drawn({"draw", "ring-right", "--n", "4", "--without", "1"});
  EXPECT_THAT(dot, HasSubstr("r0 -> r2;"));
  EXPECT_THAT(dot, HasSubstr("r1"));
  EXPECT_THAT(dot, Not(HasSubstr("-> r1")));
  EXPECT_THAT(dot, Not(HasSubstr("r1 ->")));
}

TEST(BftopoPicture, DotHasAClusterPerStep) {
  const std::string dot = drawn({"draw", "base", "--n", "6"});
  EXPECT_EQ(count_of(dot, "subgraph cluster_"), 4);
  EXPECT_THAT(dot, HasSubstr("s3_0"));
  EXPECT_EQ(count_of(drawn({"draw", "base", "--n", "6", "--step", "2"}), "subgraph cluster_"), 1);
}

TEST(BftopoPicture, SvgHasEveryRankAndEdge) {
  const std::string svg = drawn({"draw", "star", "--n", "7", "--format", "svg"});
  EXPECT_EQ(count_of(svg, "<circle"), 7);
  EXPECT_EQ(count_of(svg, "<path d=\"M"), 7);  // six edges and the arrow's head
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, Not(HasSubstr("\"nan")));
}

TEST(BftopoPicture, SvgPutsGridsOnAGrid) {
  const std::string svg = drawn({"draw", "mesh", "--n", "6", "--shape", "2x3", "--format", "svg"});
  // Three columns 76 apart, from the margin on.
  EXPECT_EQ(count_of(svg, "cx=\"24.0\""), 2);
  EXPECT_EQ(count_of(svg, "cx=\"100.0\""), 2);
  EXPECT_EQ(count_of(svg, "cx=\"176.0\""), 2);
}

TEST(BftopoPicture, RefusesWhatNobodyCouldSee) {
  EXPECT_THROW((void)drawn({"draw", "ring", "--n", "2001"}), UsageError);
  EXPECT_THROW((void)drawn({"draw", "full", "--n", "1000"}), UsageError);
}

}  // namespace
}  // namespace bluefog::bftopo
