#include "topology/topology_report.hpp"

#include <gtest/gtest.h>

#include "topology/edge_list.hpp"
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
  EXPECT_NEAR(report.product_residual.value(), 0.6, 1e-15);  // W(0, 0) − 1/5
  EXPECT_NEAR(report.period_gap.value().lambda2.value, 0.2, 1e-12);
}

TEST(TopologyReport, OnePeerExponentialIsExactForAPowerOfTwo) {
  const TopologyReport exact = check(one_peer_exponential(64));
  EXPECT_EQ(exact.period_steps, 6);
  EXPECT_EQ(exact.max_in_degree, 1);
  EXPECT_EQ(exact.product_residual, 0.0);
  EXPECT_EQ(exact.period_gap.value().norm.value, 1.0);
  const TopologyReport other = check(one_peer_exponential(65));
  EXPECT_GT(other.product_residual.value(), 0.0);
  EXPECT_LT(other.period_gap.value().norm.value, 1.0);
}

TEST(TopologyReport, OnePeerExponentialOfManyRanks) {
  const TopologyReport report = check(one_peer_exponential(1 << 17));
  EXPECT_EQ(report.period_steps, 17);
  EXPECT_EQ(report.product_residual, 0.0);
  EXPECT_EQ(report.period_gap.value().lambda2.value, 1.0);
}

TEST(TopologyReport, RowsAndColumnsThatDoNotSumToOne) {
  const MixingMatrix matrix = MixingMatrix::from_rows({{{0, 1.0}}, {{0, 0.5}, {1, 0.75}}});
  const TopologyReport report = check(matrix);
  EXPECT_EQ(report.row_error, 0.25);
  EXPECT_EQ(report.column_error, 0.5);
  EXPECT_FALSE(report.period_gap.has_value());
  EXPECT_TRUE(
      check(MixingMatrix::from_rows({{{0, 2.0}, {1, -1.0}}, {{1, 1.0}}})).has_negative_weight);
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
  EXPECT_FALSE(cut.product_residual.has_value());
  options = {};
  options.max_product_entries = 10;
  EXPECT_FALSE(check(one_peer(mesh_2d(12)), options).product_residual.has_value());
}

}  // namespace
}  // namespace bluefog::topology
