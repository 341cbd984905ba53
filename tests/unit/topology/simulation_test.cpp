#include "topology/simulation.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/base_graph.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::topology {
namespace {

TEST(Simulation, BaseGraphReachesTheMeanInOnePeriod) {
  const Schedule schedule = base_graph(25, 1);
  const Simulation run = simulate(schedule, {.steps = schedule.period_steps()});
  ASSERT_EQ(std::ssize(run.steps), schedule.period_steps());
  EXPECT_GT(run.initial_distance, 1.0);
  EXPECT_GT(run.steps[schedule.period_steps() - 2].consensus_distance, 1e-3);
  EXPECT_LE(run.steps.back().consensus_distance, 1e-14);
  EXPECT_LE(run.mean_drift, 1e-15);
}

TEST(Simulation, CecaReachesTheMeanInOnePeriodAndStaysThere) {
  for (const CecaPorts ports : {CecaPorts::Two, CecaPorts::One}) {
    const Simulation run = simulate(Ceca(26, ports), {.steps = 8});
    EXPECT_GT(run.steps[3].consensus_distance, 1e-3);
    EXPECT_LE(run.steps[4].consensus_distance, 1e-14);
    EXPECT_LE(run.steps[7].consensus_distance, 1e-14);
    EXPECT_LE(run.mean_drift, 1e-15);
    EXPECT_EQ(run.steps[0].messages, 26);
  }
}

TEST(Simulation, RingContractsAsItsGapSays) {
  // |λ₂| = (1 + 2 cos(2π/3)) / 3 = 0 for three ranks: one step.
  EXPECT_LE(simulate(static_schedule(ring(3)), {.steps = 1}).steps[0].consensus_distance, 1e-15);
  // Every step of four ranks leaves at most a third.
  const Simulation run = simulate(static_schedule(ring(4)), {.steps = 10});
  double before = run.initial_distance;
  for (const SimulatedStep& step : run.steps) {
    EXPECT_LE(step.consensus_distance, before / 3.0 + 1e-15);
    before = step.consensus_distance;
  }
}

TEST(Simulation, OneSidedWeightsMoveTheMean) {
  const MixingMatrix follow = MixingMatrix::from_rows({{{0, 1.0}}, {{0, 1.0}}});
  EXPECT_GT(simulate(static_schedule(follow), {.steps = 1}).mean_drift, 1e-3);
}

TEST(Simulation, CountsTimeAndMessages) {
  const CostModel cost{.latency = Seconds(0.5),
                       .bytes_per_second = 100.0,
                       .message_bytes = 50,
                       .compute = Seconds(2.0)};
  EXPECT_EQ(step_time(0, cost).count(), 2.0);
  EXPECT_EQ(step_time(2, cost).count(), 4.0);
  EXPECT_EQ(ring_allreduce_time(1, cost).count(), 2.0);
  EXPECT_EQ(ring_allreduce_time(2, cost).count(), 3.5);  // 2 + 2 · 0.5 + 1 · 0.5
  std::vector<std::int64_t> done;
  const Simulation run =
      simulate(static_schedule(ring(5)),
               {.steps = 3, .cost = cost, .on_step = [&](std::int64_t n) { done.push_back(n); }});
  EXPECT_EQ(run.steps[2].elapsed.count(), 12.0);
  EXPECT_EQ(run.steps[2].messages, 10);
  EXPECT_EQ(done, (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(Simulation, CompleteGraphOfManyRanks) {
  const Simulation run = simulate(static_schedule(fully_connected(100'000)), {.steps = 1});
  EXPECT_LE(run.steps[0].consensus_distance, 1e-12);
  EXPECT_EQ(run.steps[0].messages, 100'000LL * 99'999);
}

TEST(Simulation, FollowsFromTheSeed) {
  const Schedule schedule = static_schedule(ring(5));
  const auto start = [&](std::uint64_t seed) {
    return simulate(schedule, {.steps = 0, .seed = seed}).initial_distance;
  };
  EXPECT_EQ(start(1), start(1));
  EXPECT_NE(start(1), start(2));
}

TEST(Simulation, RefusesWrongArguments) {
  const Schedule schedule = static_schedule(ring(3));
  EXPECT_THROW((void)simulate(schedule, {.steps = -1}), InvalidArgument);
  const MixingMatrix huge = MixingMatrix::from_dense(2, std::vector<double>{1e308, 1e308, 1, 1});
  EXPECT_THROW((void)simulate(static_schedule(huge), {.steps = 3}), InvalidArgument);
  EXPECT_THROW((void)step_time(1, {.latency = Seconds(-1)}), InvalidArgument);
  EXPECT_THROW((void)step_time(1, {.bytes_per_second = 0}), InvalidArgument);
  EXPECT_THROW((void)step_time(1, {.message_bytes = -1}), InvalidArgument);
  EXPECT_THROW((void)step_time(1, {.compute = Seconds(-1)}), InvalidArgument);
  EXPECT_THROW((void)ring_allreduce_time(0, {}), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
