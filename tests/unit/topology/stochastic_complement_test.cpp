#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"
#include "topology/families.hpp"
#include "topology/spectral_gap.hpp"
#include "topology/topology_report.hpp"

/// W without ranks against the dense formula, and what is said of the gap.
namespace bluefog {
namespace {

using Eigen::MatrixXd;
using Ranks = std::vector<int>;

/// Ranks 0 … size − 1 that are not in `lost`.
Ranks others(int size, const Ranks& lost) {
  Ranks left;
  for (int rank = 0; rank < size; ++rank) {
    if (!std::ranges::count(lost, rank)) {
      left.push_back(rank);
    }
  }
  return left;
}

/// W_SS + W_SD (I − W_DD)⁻¹ W_DS; absent where a part of D is closed, which makes it singular.
std::optional<MatrixXd> dense_complement(const MatrixXd& w, const Ranks& lost) {
  const Ranks left = others(static_cast<int>(w.rows()), lost);
  const auto count = static_cast<Eigen::Index>(lost.size());
  const MatrixXd open = MatrixXd::Identity(count, count) - w(lost, lost);
  const Eigen::FullPivLU<MatrixXd> lu(open);
  if (std::abs(lu.determinant()) < 1e-9) {
    return std::nullopt;
  }
  return w(left, left) + w(left, lost) * lu.solve(MatrixXd(w(lost, left)));
}

/// ‖W − J‖₂.
double norm_of_rest(const MatrixXd& w) {
  const MatrixXd rest = w.array() - 1.0 / static_cast<double>(w.rows());
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(rest.transpose() * rest,
                                                       Eigen::EigenvaluesOnly);
  return std::sqrt(std::max(0.0, solver.eigenvalues().maxCoeff()));
}

/// Sums that differ from 1 by most, of rows and columns.
double sum_error(const MatrixXd& w) {
  return std::max((w.rowwise().sum().array() - 1.0).abs().maxCoeff(),
                  (w.colwise().sum().array() - 1.0).abs().maxCoeff());
}

Ranks drawn_ranks(int size, int count, std::mt19937& random) {
  Ranks ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::shuffle(ranks, random);
  ranks.resize(static_cast<std::size_t>(count));
  std::ranges::sort(ranks);
  return ranks;
}

/// The family at this size, on machines of three or four where it needs some; or nothing.
std::optional<Schedule> member(const topology::Family& family, int size) {
  const int local_size = size % 4 == 0 ? 4 : size % 3 == 0 ? 3 : 1;
  try {
    return topology::make_schedule(
        family.name, {.size = size, .peers = 2, .local_size = local_size, .period_steps = 4});
  } catch (const Error&) {
    return std::nullopt;  // sizes that it does not have, and CECA
  }
}

/// Steps compared with the formula, and those in which some of the lost were closed.
struct Seen {
  int compared = 0;
  int closed = 0;
};

void expect_complement(const Schedule& schedule, const Ranks& lost, Seen& seen) {
  const Ranks left = others(schedule.size(), lost);
  const Schedule among = schedule.without(lost).among(left);
  for (std::int64_t step = 0; step < std::min<std::int64_t>(schedule.period_steps(), 6); ++step) {
    const MatrixXd before = testing::dense(schedule.mixing_matrix(step));
    const MatrixXd after = testing::dense(among.mixing_matrix(step));
    EXPECT_LE(sum_error(after), 1e-13) << "step " << step;
    EXPECT_GE(after.minCoeff(), 0.0) << "step " << step;
    EXPECT_LE(norm_of_rest(after), norm_of_rest(before) + 1e-7) << "step " << step;
    if (const auto expected = dense_complement(before, lost)) {
      EXPECT_LE((after - *expected).cwiseAbs().maxCoeff(), 1e-12) << "step " << step;
      ++seen.compared;
    } else {
      ++seen.closed;
    }
  }
}

TEST(StochasticComplement, EveryFamilyIsTheDenseFormula) {
  std::mt19937 random(1);
  Seen seen;
  for (const topology::Family& family : topology::families()) {
    int members = 0;
    for (int size = 2; size <= 64; ++size) {
      const auto schedule = member(family, size);
      if (!schedule || schedule->size() < 2) {
        continue;
      }
      ++members;
      for (int count = 1; count <= std::min(3, schedule->size() - 1); ++count) {
        const Ranks lost = drawn_ranks(schedule->size(), count, random);
        SCOPED_TRACE(std::string(family.name) + " of " + std::to_string(size) + " without " +
                     ::testing::PrintToString(lost));
        expect_complement(*schedule, lost, seen);
      }
    }
    EXPECT_EQ(members > 0, family.kind != topology::FamilyKind::TwoVariables) << family.name;
  }
  EXPECT_GT(seen.compared, 9000);
  EXPECT_GT(seen.closed, 100);
}

TEST(StochasticComplement, RandomDirectedWeights) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  for (int trial = 0; trial < 300; ++trial) {
    // A mean of permutations is doubly stochastic.
    const int size = 4 + static_cast<int>(random() % 29);
    MatrixXd w = MatrixXd::Zero(size, size);
    double total = 0.0;
    for (int k = 0; k < 4; ++k) {
      Ranks to(static_cast<std::size_t>(size));
      std::iota(to.begin(), to.end(), 0);
      std::ranges::shuffle(to, random);
      const double weight = share(random);
      total += weight;
      for (int rank = 0; rank < size; ++rank) {
        w(rank, to[static_cast<std::size_t>(rank)]) += weight;
      }
    }
    const MatrixXd transposed = w.transpose() / total;
    const auto matrix = MixingMatrix::from_dense(
        size, {transposed.data(), static_cast<std::size_t>(transposed.size())});
    Seen seen;
    expect_complement(topology::static_schedule(matrix), drawn_ranks(size, 1 + trial % 3, random),
                      seen);
  }
}

TEST(StochasticComplement, TheGapOfARingOfEightDoesNotFall) {
  const Schedule ring = topology::static_schedule(topology::ring(8));
  EXPECT_NEAR(topology::spectral_gap(topology::ring(8)).norm.value, 0.195, 5e-4);
  double gap = 0.195;
  Ranks lost;
  for (const int rank : {5, 0, 2, 7}) {
    lost.push_back(rank);
    const MixingMatrix left = ring.without(lost).among(others(8, lost)).mixing_matrix(0);
    const double next = topology::spectral_gap(left).norm.value;
    EXPECT_GE(next, gap) << "without " << lost.size();
    gap = next;
  }
}

TEST(StochasticComplement, ReportsOfThoseThatAreLeft) {
  const auto report =
      topology::check(topology::one_peer_exponential(8).without(Ranks{3}).among(others(8, {3})));
  EXPECT_EQ(report.size, 7);
  EXPECT_EQ(report.edge_mismatches, 0);
  EXPECT_EQ(report.parts, 1);
  EXPECT_LE(report.column_error, 1e-15);
  ASSERT_TRUE(report.period_gap);
  EXPECT_NEAR(1.0 - report.period_gap->norm.value, 0.354, 5e-4);
}

}  // namespace
}  // namespace bluefog
