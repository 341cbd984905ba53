#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bluefog_cpp/error.hpp"
#include "examples/average_consensus/contraction.hpp"
#include "examples/common/collect.hpp"
#include "examples/common/named_schedule.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/examples/ranks_as_threads.hpp"
#include "tests/unit/examples/temporary_folder.hpp"

namespace bluefog::examples {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NamedScheduleTest, EveryNameGivesAScheduleThatKeepsTheMean) {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule(name, 8);
    EXPECT_EQ(schedule.size(), 8) << name;
    const std::int64_t steps = std::min<std::int64_t>(schedule.period_steps(), 100);
    for (std::int64_t step = 0; step < steps; ++step) {
      EXPECT_TRUE(schedule.mixing_matrix(step).is_doubly_stochastic()) << name;
    }
  }
}

TEST(NamedScheduleTest, EveryNameButHypercubesTakesAnySize) {
  for (const std::string& name : schedule_names()) {
    for (const int size : {1, 2, 3, 5, 7}) {
      if (!name.ends_with("hypercube")) {
        EXPECT_EQ(make_schedule(name, size).size(), size) << name;
      }
    }
  }
  EXPECT_THROW((void)make_schedule("hypercube", 3), InvalidArgument);
  EXPECT_THROW((void)make_schedule("one-peer-hypercube", 3), InvalidArgument);
}

TEST(NamedScheduleTest, AFileOfEdgesIsAGraph) {
  const TemporaryFolder folder;
  const std::string edges = "0 1 0.5\n1 1 0.5\n1 0 0.25\n0 0 0.75\n";
  const std::string file = folder.write("graph.txt", {edges.begin(), edges.end()}).string();
  EXPECT_EQ(make_schedule(file, 2).mixing_matrix(0).to_dense(),
            (std::vector<double>{0.75, 0.25, 0.5, 0.5}));
  EXPECT_THAT(testing::error_of<InvalidArgument>([&] { (void)make_schedule(file, 1); }),
              HasSubstr(file + ", line 1: '1' is not a rank, expected 0 to 0"));
}

TEST(NamedScheduleTest, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT(
      testing::error_of<InvalidArgument>([] { (void)make_schedule("wheel", 4); }),
      AllOf(HasSubstr("exponential, "), HasSubstr("one-peer-exponential"), HasSubstr("'wheel'")));
}

TEST(ContractionTest, IsThatOfTheClosedForms) {
  EXPECT_NEAR(contraction_per_period(make_schedule("ring", 4)), 1.0 / 3.0, 1e-12);
  EXPECT_NEAR(contraction_per_period(make_schedule("exponential", 8)), 0.5, 1e-12);
  EXPECT_NEAR(contraction_per_period(make_schedule("full", 5)), 0.0, 1e-12);
  EXPECT_NEAR(contraction_per_period(make_schedule("one-peer-exponential", 8)), 0.0, 1e-12);
  EXPECT_NEAR(contraction_per_period(make_schedule("ring", 1)), 0.0, 1e-12);
}

TEST(ContractionTest, CountsWholePeriods) {
  EXPECT_EQ(predicted_distance(0.5, 3, 2), 1.0);
  EXPECT_EQ(predicted_distance(0.5, 3, 3), 0.5);
  EXPECT_EQ(predicted_distance(0.5, 3, 8), 0.25);
}

TEST(CollectTest, ValuesComeByRank) {
  on_ranks(3, [](Context& context) {
    EXPECT_THAT(collect(context, 10.0 * context.rank()), ElementsAre(0.0, 10.0, 20.0));
    EXPECT_EQ(sum_over_ranks(context, 1.0 + context.rank()), 6.0);
  });
}

TEST(CollectTest, ConsensusDistanceIsThatOfTheStackedVectors) {
  on_ranks(2, [](Context& context) {
    // x_0 = (1, …, 1), x_1 = (3, …, 3): each value is 1 away from its mean.
    const std::vector<double> x(50, 1.0 + 2.0 * context.rank());
    EXPECT_DOUBLE_EQ(consensus_distance(context, x), 10.0);
    const std::vector<double> same(7, 5.0);
    EXPECT_EQ(consensus_distance(context, same), 0.0);
  });
}

}  // namespace
}  // namespace bluefog::examples
