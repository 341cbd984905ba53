#include "topology/topology_report.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"
#include "topology/base_graph.hpp"
#include "topology/edge_list.hpp"
#include "topology/one_to_one.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::topology {
namespace {

TEST(TopologyReport, StaticGraph) {
  const TopologyReport report = check(star(5, 1));
  EXPECT_EQ(report.size, 5);
  EXPECT_EQ(report.period_steps, 1);
  EXPECT_LE(report.row_error, 1e-15);
  EXPECT_LE(report.column_error, 1e-15);
  EXPECT_EQ(report.max_in_degree, 4);
  EXPECT_EQ(report.max_out_degree, 4);
  EXPECT_FALSE(report.has_negative_weight);
  EXPECT_NEAR(report.period_residual.value(), 0.6, 1e-15);  // W(0, 0) − 1/5
  EXPECT_NEAR(report.period_gap.value().lambda2.value, 0.2, 1e-12);
}

TEST(TopologyReport, OnePeerExponentialIsExactForAPowerOfTwo) {
  const TopologyReport exact = check(one_peer_exponential(64));
  EXPECT_EQ(exact.period_steps, 6);
  EXPECT_EQ(exact.max_in_degree, 1);
  EXPECT_EQ(exact.period_residual, 0.0);
  EXPECT_EQ(exact.period_gap.value().norm.value, 1.0);
  const TopologyReport other = check(one_peer_exponential(65));
  EXPECT_GT(other.period_residual.value(), 0.0);
  EXPECT_LT(other.period_gap.value().norm.value, 1.0);
}

TEST(TopologyReport, OnePeerExponentialOfManyRanks) {
  const TopologyReport report = check(one_peer_exponential(1 << 17));
  EXPECT_EQ(report.period_steps, 17);
  EXPECT_EQ(report.period_residual, 0.0);
  EXPECT_EQ(report.period_gap.value().lambda2.value, 1.0);
}

TEST(TopologyReport, RowsAndColumnsThatDoNotSumToOne) {
  const MixingMatrix matrix = MixingMatrix::from_rows({{{0, 1.0}}, {{0, 0.5}, {1, 0.75}}});
  const TopologyReport report = check(matrix);
  EXPECT_EQ(report.row_error, 0.25);
  EXPECT_EQ(report.column_error, 0.5);
  EXPECT_EQ(report.worst_row.rank, 1);
  EXPECT_EQ(report.worst_row.sum, 1.25);
  EXPECT_EQ(report.worst_column.rank, 0);
  EXPECT_EQ(report.worst_column.sum, 1.5);
  EXPECT_FALSE(report.period_gap.has_value());
  EXPECT_TRUE(
      check(MixingMatrix::from_rows({{{0, 2.0}, {1, -1.0}}, {{1, 1.0}}})).has_negative_weight);
}

TEST(TopologyReport, PartsOfAPeriod) {
  // Ranks 0 and 1, 2 and 4, and 3 alone; the second step joins 1 and 2, an edge of weight 0 nobody.
  std::vector<double> first(25, 0.0);
  for (int rank = 0; rank < 5; ++rank) {
    first[static_cast<std::size_t>(rank) * 6] = 1.0;
  }
  std::vector<double> second = first;
  first[1] = 0.5;
  first[14] = 0.5;
  const TopologyReport apart = check(MixingMatrix::from_dense(5, first));
  EXPECT_EQ(apart.parts, 3);
  EXPECT_EQ(apart.first_apart, 2);
  second[7] = 0.5;
  const TopologyReport both =
      check(cycle({MixingMatrix::from_dense(5, first), MixingMatrix::from_dense(5, second)}));
  EXPECT_EQ(both.parts, 2);
  EXPECT_EQ(both.first_apart, 3);
  EXPECT_EQ(both.worst_row.step, 0);
  EXPECT_EQ(check(MixingMatrix::from_rows({{{0, 1.0}, {1, 0.0}}, {{1, 1.0}}})).parts, 2);
  EXPECT_EQ(check(ring(7)).parts, 1);
  EXPECT_EQ(check(ring(7)).first_apart, -1);
  EXPECT_FALSE(check(random_matching(6, 1)).parts.has_value());
}

TEST(TopologyReport, OnePeerOfAnIrregularGraphKeepsRowsOnly) {
  const TopologyReport report = check(one_peer(star(4)));
  EXPECT_EQ(report.period_steps, 3);
  EXPECT_LE(report.row_error, 1e-15);
  EXPECT_GT(report.column_error, 0.1);
  EXPECT_EQ(report.max_in_degree, 3);
  EXPECT_EQ(report.max_out_degree, 1);
}

TEST(TopologyReport, LongPeriodsAndLargeProductsAreLeftOut) {
  ReportOptions options;
  options.max_steps = 2;
  const TopologyReport cut = check(one_peer_exponential(64), options);
  EXPECT_EQ(cut.steps_checked, 2);
  EXPECT_EQ(cut.period_steps, 6);
  EXPECT_FALSE(cut.period_residual.has_value());
  options = {};
  options.max_product_entries = 10;
  EXPECT_FALSE(check(one_peer(mesh_2d(12)), options).period_residual.has_value());
}

TEST(TopologyReport, CountsMessagesAndBytes) {
  const TopologyReport report = check(star(5), {.message_bytes = 100});
  EXPECT_EQ(report.max_degree(), 4);
  EXPECT_EQ(report.messages_per_step, 8.0);
  EXPECT_EQ(report.max_messages_per_step, 8);
  EXPECT_EQ(report.bytes_per_rank_per_step, 160.0);
  EXPECT_EQ(report.max_bytes_per_rank_per_step, 400);
  EXPECT_FALSE(report.bytes_between_machines_per_step.has_value());
}

TEST(TopologyReport, CountsBytesBetweenMachines) {
  // Two machines of four: of the distances 1, 2 and 4 of eight ranks, 1, 2 and 4 leave each.
  const MachineLayout layout = MachineLayout::single(8).split(4);
  const TopologyReport report =
      check(one_peer_exponential(8), {.message_bytes = 10, .layout = layout});
  EXPECT_NEAR(report.bytes_between_machines_per_step.value(), 10.0 * (2 + 4 + 8) / 3, 1e-12);
  // One message leaves each machine in a step of an inner–outer schedule.
  const TopologyReport ring_report =
      check(inner_outer_ring(2, 4), {.message_bytes = 10, .layout = layout});
  EXPECT_EQ(ring_report.bytes_between_machines_per_step, 20.0);
}

/// Rank 0 says that it sends to 1, and 1 does not know.
class OneSidedSource final : public Schedule::Source {
 public:
  [[nodiscard]] int size() const override { return 3; }
  [[nodiscard]] std::int64_t period_steps() const override { return 2; }
  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t) const override {
    return MixingMatrix::identity(3);
  }
  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t) const override {
    NeighborPlan plan = NeighborPlan::alone(rank, 3);
    if (rank == 0) {
      plan.destinations = {{1, 1.0}};
    }
    return plan;
  }
};

TEST(TopologyReport, FindsSendersWithoutReceivers) {
  EXPECT_EQ(check(Schedule(std::make_unique<OneSidedSource>())).edge_mismatches, 2);
  EXPECT_EQ(check(ring(3)).edge_mismatches, 0);
  EXPECT_FALSE(check(ring(3), {.max_edges = 2}).edge_mismatches.has_value());
}

TEST(TopologyReport, ProbesWhereTheProductIsTooLarge) {
  const TopologyReport exact = check(base_graph(37, 1), {.max_product_entries = 100});
  EXPECT_FALSE(exact.period_residual.has_value());
  EXPECT_LE(exact.probed_residual.value(), 1e-14);
  const Schedule schedule = one_peer(mesh_2d(30));
  const TopologyReport inexact = check(schedule, {.max_product_entries = 100, .probes = 2000});
  const Eigen::MatrixXd left =
      (testing::dense_period(schedule).array() - 1.0 / schedule.size()).matrix();
  // The mean of 2000 squares is off by a tenth at most, and the largest of 30 picks the highest.
  EXPECT_NEAR(inexact.probed_residual.value(), left.rowwise().norm().maxCoeff(),
              0.1 * left.rowwise().norm().maxCoeff());
}

TEST(TopologyReport, ManyRanksThatAreNoPattern) {
  const TopologyReport report = check(base_graph(20'011, 1), {.probes = 2});
  EXPECT_LE(report.row_error, 1e-15);
  EXPECT_LE(report.column_error, 1e-15);
  EXPECT_EQ(report.max_degree(), 1);
  EXPECT_EQ(report.edge_mismatches, 0);
  EXPECT_LE(report.probed_residual.value(), 1e-12);
  EXPECT_FALSE(report.period_gap.has_value());
}

TEST(TopologyReport, CecaAveragesExactlyWithOneMessageEach) {
  for (int size = 1; size <= 64; ++size) {
    const TopologyReport report = check(Ceca(size));
    EXPECT_LE(report.row_error, 1e-15) << size;
    EXPECT_LE(report.column_error, 1e-15) << size;
    EXPECT_LE(report.period_residual.value(), 1e-14) << size;
    EXPECT_NEAR(report.period_gap.value().lambda2.value, 1.0, 1e-12) << size;
    EXPECT_EQ(report.max_degree(), size > 1 ? 1 : 0) << size;
    EXPECT_EQ(report.messages_per_step, size > 1 ? size : 0) << size;
  }
  EXPECT_LE(check(Ceca(1000, CecaPorts::One), {.max_product_entries = 10}).probed_residual.value(),
            1e-13);
}

TEST(TopologyReport, RefusesWrongArguments) {
  EXPECT_THROW((void)check(ring(4), {.layout = MachineLayout::single(5)}), InvalidArgument);
  EXPECT_THROW((void)check(ring(4), {.message_bytes = -1}), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
