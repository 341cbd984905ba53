#pragma once

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <vector>

#include "topology/mixing/plan_agreement.hpp"
#include "topology/schedule.hpp"

/// Schedules as dense matrices, which the tests compare with.
namespace bluefog::testing {

inline Eigen::MatrixXd dense(const MixingMatrix& matrix) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::vector<double> values = matrix.to_dense();
  return Eigen::Map<const RowMajor>(values.data(), matrix.size(), matrix.size());
}

/// W(T − 1) … W(0).
inline Eigen::MatrixXd dense_period(const Schedule& schedule) {
  Eigen::MatrixXd product = Eigen::MatrixXd::Identity(schedule.size(), schedule.size());
  for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
    product = dense(schedule.mixing_matrix(step)) * product;
  }
  return product;
}

/// Largest |P(i, j) − 1/n|.
inline double distance_from_average(const Eigen::MatrixXd& product) {
  return (product.array() - 1.0 / static_cast<double>(product.rows())).abs().maxCoeff();
}

/// Every step is doubly stochastic, a plan is its matrix's, and the plans fit together.
inline void expect_plans_fit(const Schedule& schedule, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    const MixingMatrix matrix = schedule.mixing_matrix(step);
    EXPECT_TRUE(matrix.is_doubly_stochastic(1e-14)) << "step " << step;
    std::vector<NeighborPlan> plans;
    for (int rank = 0; rank < schedule.size(); ++rank) {
      plans.push_back(*schedule.plan_for(rank, step));
      ASSERT_EQ(plans.back(), matrix.plan_for(rank)) << "step " << step;
    }
    EXPECT_NO_THROW(check_plans_agree(plans)) << "step " << step;
  }
}

}  // namespace bluefog::testing
