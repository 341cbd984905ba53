#include "topology/families.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <Eigen/SVD>
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"
#include "topology/topology_report.hpp"

namespace bluefog::topology {
namespace {

/// Divisor of `size` for machines, 3 or more if there is one.
int local_size_for(int size) {
  for (const int local : {4, 3, 5, 7}) {
    if (size % local == 0 && size / local >= 2) {
      return local;
    }
  }
  return 1;
}

/// The family at this size, or nothing if it has none.
std::optional<Schedule> member(const Family& family, int size) {
  if (family.kind == FamilyKind::TwoVariables) {
    return std::nullopt;
  }
  FamilyOptions options{.size = size, .local_size = local_size_for(size), .period_steps = 5};
  options.peers = 2;
  try {
    return make_schedule(family.name, options);
  } catch (const InvalidArgument&) {
    return std::nullopt;  // powers of two, smooth sizes, machines
  }
}

/// The report's figures, computed from dense matrices.
struct DenseFacts {
  double row_error = 0.0;
  double column_error = 0.0;
  int degree = 0;
  std::int64_t messages = 0;

  explicit DenseFacts(const Schedule& schedule) {
    for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
      const Eigen::MatrixXd w = testing::dense(schedule.mixing_matrix(step));
      row_error = std::max(row_error, (w.rowwise().sum().array() - 1.0).abs().maxCoeff());
      column_error = std::max(column_error, (w.colwise().sum().array() - 1.0).abs().maxCoeff());
      Eigen::MatrixXi edges = (w.array() != 0.0).cast<int>();
      edges.diagonal().setZero();
      degree =
          std::max({degree, edges.rowwise().sum().maxCoeff(), edges.colwise().sum().maxCoeff()});
      messages += edges.sum();
    }
  }
};

void expect_report_is_dense(const Schedule& schedule, const std::string& name) {
  const TopologyReport report = check(schedule);
  const DenseFacts facts(schedule);
  ASSERT_EQ(report.steps_checked, schedule.period_steps()) << name;
  EXPECT_NEAR(report.row_error, facts.row_error, 1e-14) << name;
  EXPECT_NEAR(report.column_error, facts.column_error, 1e-14) << name;
  EXPECT_EQ(report.max_degree(), facts.degree) << name;
  EXPECT_EQ(report.edge_mismatches, 0) << name;
  EXPECT_NEAR(report.messages_per_step,
              static_cast<double>(facts.messages) / static_cast<double>(schedule.period_steps()),
              1e-9)
      << name;

  const Eigen::MatrixXd product = testing::dense_period(schedule);
  EXPECT_NEAR(report.period_residual.value(), testing::distance_from_average(product), 1e-13)
      << name;
  const Eigen::MatrixXd reduced =
      (product.array() - 1.0 / static_cast<double>(schedule.size())).matrix();
  const double norm = reduced.jacobiSvd().singularValues()(0);
  EXPECT_NEAR(report.period_gap.value().norm.value, 1.0 - norm, 1e-9) << name;
  // Defective eigenvalues, as of products that end in J, are known only to a root of the rounding.
  const double lambda = reduced.eigenvalues().cwiseAbs().maxCoeff();
  EXPECT_NEAR(report.period_gap.value().lambda2.value, 1.0 - lambda, norm > 1e-9 ? 1e-6 : 1e-9)
      << name;
}

TEST(Families, ReportsAgreeWithDenseMatrices) {
  std::set<std::string_view> seen;
  for (const Family& family : families()) {
    for (int size = 2; size <= 64; ++size) {
      const std::optional<Schedule> schedule = member(family, size);
      if (!schedule) {
        continue;
      }
      seen.insert(family.name);
      expect_report_is_dense(*schedule, std::string(family.name) + " of " + std::to_string(size));
    }
  }
  for (const Family& family : families()) {
    EXPECT_EQ(seen.contains(family.name), family.kind != FamilyKind::TwoVariables) << family.name;
  }
}

TEST(Families, EveryOneIsDoublyStochasticAndFits) {
  for (const Family& family : families()) {
    for (const int size : {1, 2, 8, 12}) {
      const std::optional<Schedule> schedule = member(family, size);
      if (schedule) {
        testing::expect_plans_fit(*schedule, schedule->period_steps());
      }
    }
  }
}

TEST(Families, ReadTheirOptions) {
  EXPECT_EQ(make_schedule("base", {.size = 9, .peers = 2}).period_steps(), 2);
  EXPECT_EQ(make_schedule("exponential", {.size = 9, .base = 3}).mixing_matrix(0),
            exponential(9, 3));
  EXPECT_EQ(make_schedule("symmetric-exponential", {.size = 9}).mixing_matrix(0),
            symmetric_exponential(9));
  EXPECT_EQ(make_schedule("star", {.size = 5, .center = 2}).mixing_matrix(0), star(5, 2));
  EXPECT_EQ(make_schedule("torus", {.size = 12, .shape = GridShape{2, 6}}).mixing_matrix(0),
            torus_2d(12, GridShape{2, 6}));
  EXPECT_EQ(make_schedule("random-matching", {.size = 5, .period_steps = 7}).period_steps(), 7);
  EXPECT_EQ(make_schedule("machine-exponential", {.size = 12, .local_size = 3}).size(), 4);
}

TEST(Families, RefuseWhatTheyCannotBe) {
  EXPECT_THAT([] { (void)make_schedule("wheel", {.size = 4}); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::AllOf(
                  ::testing::HasSubstr("one-peer-exponential"), ::testing::HasSubstr("'wheel'"))));
  EXPECT_THROW((void)make_schedule("ceca", {.size = 4}), UnsupportedError);
  EXPECT_THROW((void)make_schedule("hypercube", {.size = 6}), InvalidArgument);
  EXPECT_THROW((void)make_schedule("alternating-exponential", {.size = 7, .local_size = 2}),
               InvalidArgument);
  EXPECT_THROW((void)make_schedule("machine-exponential", {.size = 7, .local_size = 2}),
               InvalidArgument);
}

TEST(Families, NamesForAnyProgram) {
  const std::vector<std::string> names = schedule_names();
  EXPECT_THAT(names, ::testing::IsSupersetOf({"ring", "base", "equidyn", "random-matching"}));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains("ceca")));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains("inner-outer-ring")));
}

}  // namespace
}  // namespace bluefog::topology
