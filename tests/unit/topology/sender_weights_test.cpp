#include "topology/mixing/sender_weights.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "topology/mixing/plan_agreement.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog {
namespace {

/// Columns sum to 1, rows do not; rank 0 reaches rank 2 by an edge of weight 0.
MixingMatrix unbalanced() {
  return MixingMatrix::from_rows(
      {{{.rank = 0, .weight = 0.5}, {.rank = 1, .weight = 0.25}},
       {{.rank = 0, .weight = 0.5}, {.rank = 1, .weight = 0.5}},
       {{.rank = 0, .weight = 0.0}, {.rank = 1, .weight = 0.25}, {.rank = 2, .weight = 1.0}}});
}

Schedule two_graphs() { return topology::cycle({unbalanced(), topology::exponential(3)}); }

/// The matrix that the parts of the plans compute together.
MixingMatrix mixed_by(const std::vector<NeighborPlan>& plans) {
  std::vector<WeightedEdge> edges;
  for (const NeighborPlan& plan : plans) {
    edges.push_back({.source = plan.rank, .destination = plan.rank, .weight = plan.self_weight});
    for (const WeightedRank& source : plan.sources) {
      for (const WeightedRank& to : plans[static_cast<std::size_t>(source.rank)].destinations) {
        if (to.rank == plan.rank) {
          edges.push_back({.source = source.rank,
                           .destination = plan.rank,
                           .weight = source.weight * to.weight});
        }
      }
    }
  }
  return MixingMatrix::from_edges(static_cast<int>(plans.size()), edges);
}

TEST(SenderWeights, StandAtTheDestinations) {
  const Schedule schedule = topology::weighed_by_senders(two_graphs());
  const NeighborPlan sender{
      .rank = 0,
      .size = 3,
      .self_weight = 0.5,
      .sources = {{.rank = 1, .weight = 1.0}},
      .destinations = {{.rank = 1, .weight = 0.5}, {.rank = 2, .weight = 0.0}}};
  EXPECT_EQ(*schedule.plan_for(0, 0), sender);
  EXPECT_EQ(*schedule.plan_for(0, 2), sender);
  const NeighborPlan receiver{.rank = 2,
                              .size = 3,
                              .self_weight = 1.0,
                              .sources = {{.rank = 0, .weight = 1.0}, {.rank = 1, .weight = 1.0}},
                              .destinations = {}};
  EXPECT_EQ(*schedule.plan_for(2, 0), receiver);
}

TEST(SenderWeights, MixAsTheScheduleDoes) {
  for (const Schedule& original : {two_graphs(), topology::one_peer_exponential(6),
                                   topology::static_schedule(topology::star(5)),
                                   topology::static_schedule(topology::fully_connected(1))}) {
    const Schedule schedule = topology::weighed_by_senders(original);
    ASSERT_EQ(schedule.size(), original.size());
    ASSERT_EQ(schedule.period_steps(), original.period_steps());
    for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
      const MixingMatrix matrix = original.mixing_matrix(step);
      EXPECT_EQ(schedule.mixing_matrix(step), matrix);
      std::vector<NeighborPlan> plans;
      for (int rank = 0; rank < schedule.size(); ++rank) {
        plans.push_back(*schedule.plan_for(rank, step));
        EXPECT_NO_THROW(plans.back().validate());
      }
      EXPECT_NO_THROW(check_plans_agree(plans)) << "step " << step;
      EXPECT_EQ(mixed_by(plans), matrix) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace bluefog
