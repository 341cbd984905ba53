#include "topology/spectral_gap.hpp"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::topology {
namespace {

struct DenseGaps {
  double lambda2;
  double norm;
};

/// Both gaps from all eigenvalues and singular values of W − J: the oracle.
DenseGaps dense_oracle(const MixingMatrix& matrix) {
  const int n = matrix.size();
  Eigen::MatrixXd reduced(n, n);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      reduced(i, j) = matrix.weight(i, j) - 1.0 / n;
    }
  }
  const Eigen::EigenSolver<Eigen::MatrixXd> values(reduced, false);
  const Eigen::JacobiSVD<Eigen::MatrixXd> singular(reduced);
  return {1.0 - values.eigenvalues().cwiseAbs().maxCoeff(), 1.0 - singular.singularValues()[0]};
}

void expect_gap(const SpectralGap& gap, const DenseGaps& expected, double tolerance,
                const std::string& what) {
  ASSERT_TRUE(gap.converged()) << what;
  EXPECT_NEAR(gap.lambda2.value, expected.lambda2, tolerance) << what;
  EXPECT_NEAR(gap.norm.value, expected.norm, tolerance) << what;
  EXPECT_LE(gap.lambda2.lower, gap.lambda2.value);
  EXPECT_GE(gap.lambda2.upper, gap.lambda2.value);
  EXPECT_LT(gap.lambda2.upper - gap.lambda2.lower, 1e-6) << what;
}

/// The same graph with its ranks renamed.
MixingMatrix relabeled(const MixingMatrix& matrix, unsigned seed) {
  std::vector<int> name(matrix.size());
  std::iota(name.begin(), name.end(), 0);
  std::shuffle(name.begin(), name.end(), std::mt19937(seed));
  std::vector<std::vector<WeightedRank>> rows(matrix.size());
  for (int rank = 0; rank < matrix.size(); ++rank) {
    for (const WeightedRank& entry : matrix.row(rank)) {
      rows[name[rank]].push_back({name[entry.rank], entry.weight});
    }
  }
  return MixingMatrix::from_rows(std::move(rows));
}

/// Each rank hears itself and a few others at random; rows sum to 1.
MixingMatrix random_directed(int size, int degree, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<WeightedEdge> edges;
  std::vector<std::vector<WeightedRank>> rows(size);
  for (int rank = 0; rank < size; ++rank) {
    std::vector<int> others = {rank, (rank + 1) % size};
    for (int k = 1; k < degree; ++k) {
      others.push_back(static_cast<int>(random() % size));
    }
    std::ranges::sort(others);
    others.erase(std::unique(others.begin(), others.end()), others.end());
    double left = 1.0;
    for (std::size_t k = 0; k < others.size(); ++k) {
      const double weight = k + 1 == others.size() ? left : left / 2.0;
      rows[rank].push_back({others[k], weight});
      left -= weight;
    }
  }
  return MixingMatrix::from_rows(std::move(rows));
}

double ring_gap(double size) { return 2.0 / 3.0 * (1.0 - std::cos(2.0 * std::numbers::pi / size)); }

TEST(SpectralGap, AllFamiliesAgreeWithDenseEigenvalues) {
  for (int size = 2; size <= 40; ++size) {
    for (const MixingMatrix& matrix :
         {exponential(size), exponential(size, 3), symmetric_exponential(size), ring(size),
          ring(size, RingStyle::Left), ring(size, RingStyle::Right), mesh_2d(size), torus_2d(size),
          star(size), fully_connected(size)}) {
      expect_gap(spectral_gap(matrix), dense_oracle(matrix), 1e-12, "size " + std::to_string(size));
    }
  }
  for (int size = 2; size <= 32; size *= 2) {
    expect_gap(spectral_gap(hypercube(size)), dense_oracle(hypercube(size)), 1e-12, "hypercube");
  }
}

TEST(SpectralGap, FourierDenseAndIterativeAgree) {
  for (const MixingMatrix& matrix :
       {exponential(37), ring(64), torus_2d(60), hypercube(32), ring(30, RingStyle::Right)}) {
    const DenseGaps expected = dense_oracle(matrix);
    for (const GapMethod method : {GapMethod::Fourier, GapMethod::Dense, GapMethod::Iterative}) {
      GapOptions options;
      options.method = method;
      const SpectralGap gap = spectral_gap(matrix, options);
      EXPECT_EQ(gap.method, method);
      expect_gap(gap, expected, 1e-8, std::string(name_of(method)));
    }
  }
}

TEST(SpectralGap, ExponentialHasItsClosedForm) {
  for (int size = 2, tau = 1; size <= 1000; size += 2) {
    while ((1 << tau) < size) {
      ++tau;
    }
    const SpectralGap gap = spectral_gap(exponential(size));
    EXPECT_NEAR(gap.lambda2.value, 2.0 / (1 + tau), 1e-13) << size;
    EXPECT_NEAR(gap.norm.value, 2.0 / (1 + tau), 1e-13) << size;
    if (size > 2) {
      EXPECT_GT(spectral_gap(exponential(size - 1)).lambda2.value, 2.0 / (1 + tau)) << size - 1;
    }
  }
}

TEST(SpectralGap, OneRankAndExactAveraging) {
  EXPECT_EQ(spectral_gap(MixingMatrix::identity(1)).lambda2.value, 1.0);
  EXPECT_NEAR(spectral_gap(fully_connected(7)).norm.value, 1.0, 1e-15);
  GapOptions dense;
  dense.method = GapMethod::Dense;
  EXPECT_NEAR(spectral_gap(MixingMatrix::identity(1), dense).lambda2.value, 1.0, 1e-15);
}

TEST(SpectralGap, HundredThousandRanksOfRegularGraphs) {
  constexpr int kSize = 100'000;
  EXPECT_NEAR(spectral_gap(exponential(kSize)).lambda2.value, 2.0 / 18.0, 1e-13);
  EXPECT_NEAR(spectral_gap(ring(kSize)).lambda2.value / ring_gap(kSize), 1.0, 1e-5);
  EXPECT_EQ(spectral_gap(fully_connected(kSize)).lambda2.value, 1.0);
  // The slowest wave of a torus is that along its longer side.
  const double expected = 2.0 / 5.0 * (1.0 - std::cos(2.0 * std::numbers::pi / 400.0));
  EXPECT_NEAR(spectral_gap(torus_2d(kSize)).norm.value, expected, 1e-13);
  EXPECT_NEAR(spectral_gap(hypercube(1 << 17)).lambda2.value, 2.0 / 18.0, 1e-13);
  EXPECT_TRUE(spectral_gap(exponential(99'991)).converged());  // a prime
}

TEST(SpectralGap, HundredThousandRanksOfAMesh) {
  const SpectralGap gap = spectral_gap(mesh_2d(100'000));  // 250 × 400
  EXPECT_EQ(gap.method, GapMethod::Iterative);
  ASSERT_TRUE(gap.converged());
  // A path of 400 inside the mesh, but for its border rows' heavier weights.
  const double path = 2.0 / 5.0 * (1.0 - std::cos(std::numbers::pi / 400.0));
  EXPECT_NEAR(gap.lambda2.value / path, 1.0, 0.01);
  EXPECT_LT(gap.lambda2.upper - gap.lambda2.lower, 1e-3 * gap.lambda2.value);
}

TEST(SpectralGap, HundredThousandRanksOfAStar) {
  constexpr int kSize = 100'000;
  const SpectralGap gap = spectral_gap(star(kSize, 7));
  EXPECT_EQ(gap.method, GapMethod::Star);
  ASSERT_TRUE(gap.converged());
  EXPECT_NEAR(gap.lambda2.value, 1.0 / kSize, 1e-14);
  EXPECT_NEAR(gap.norm.value, 1.0 / kSize, 1e-14);
  EXPECT_LT(gap.lambda2.upper - gap.lambda2.lower, 1e-13);
}

TEST(SpectralGap, StarsOfAnyWeightHaveTheirClosedFormAndOtherMatricesDoNot) {
  const auto weighted = [](int size, double weight, double center_weight) {
    std::vector<std::vector<WeightedRank>> rows(size);
    rows[0].push_back({0, 1.0 - (size - 1) * center_weight});
    for (int rank = 1; rank < size; ++rank) {
      rows[0].push_back({rank, center_weight});
      rows[rank] = {{0, weight}, {rank, 1.0 - weight}};
    }
    return MixingMatrix::from_rows(std::move(rows));
  };
  for (const double weight : {0.02, 0.125, 0.24}) {
    const MixingMatrix even = weighted(8, weight, weight);
    EXPECT_EQ(spectral_gap(even).method, GapMethod::Star) << weight;
    expect_gap(spectral_gap(even), dense_oracle(even), 1e-12, std::to_string(weight));
    const MixingMatrix uneven = weighted(8, weight, weight / 2);
    EXPECT_EQ(spectral_gap(uneven).method, GapMethod::Dense) << weight;
    expect_gap(spectral_gap(uneven), dense_oracle(uneven), 1e-12, std::to_string(weight));
  }
  // A star with one more edge.
  std::vector<double> dense = star(6).to_dense();
  for (const auto& [i, j] : {std::pair{1, 2}, std::pair{2, 1}}) {
    dense[6 * i + j] += 0.1;
    dense[6 * i + i] -= 0.1;
  }
  EXPECT_EQ(spectral_gap(MixingMatrix::from_dense(6, dense)).method, GapMethod::Dense);
}

TEST(SpectralGap, CirculantRowsAreRecognised) {
  const MixingMatrix rows = MixingMatrix::from_dense(21, exponential(21).to_dense());
  ASSERT_EQ(rows.pattern(), nullptr);
  EXPECT_EQ(spectral_gap(rows).method, GapMethod::Fourier);
  EXPECT_EQ(spectral_gap(relabeled(exponential(21), 1)).method, GapMethod::Dense);
}

TEST(SpectralGap, RenamedRingsConverge) {
  for (const RingStyle style : {RingStyle::Both, RingStyle::Left}) {
    const MixingMatrix natural = ring(10'000, style);
    const SpectralGap gap = spectral_gap(relabeled(natural, 3));
    EXPECT_EQ(gap.method, GapMethod::Iterative);
    ASSERT_TRUE(gap.converged());
    const double expected = spectral_gap(natural).lambda2.value;
    EXPECT_NEAR(gap.lambda2.value / expected, 1.0, 1e-3);
    EXPECT_NEAR(gap.norm.value / expected, 1.0, 1e-3);
  }
}

TEST(SpectralGap, WhatDoesNotConvergeSaysSoWithBounds) {
  GapOptions options;
  options.max_fill = 0;  // no factorisation: plain Lanczos, which cannot
  options.max_restarts = 3;
  const MixingMatrix natural = ring(10'000);
  const double expected = spectral_gap(natural).lambda2.value;
  const SpectralGap gap = spectral_gap(relabeled(natural, 3), options);
  EXPECT_FALSE(gap.converged());
  EXPECT_TRUE(std::isnan(gap.lambda2.value));
  EXPECT_TRUE(std::isnan(gap.norm.value));
  EXPECT_LE(gap.lambda2.lower, expected);
  EXPECT_GE(gap.lambda2.upper, expected);
  EXPECT_NEAR(gap.lambda2.lower, 0.0, 1e-9);
}

TEST(SpectralGap, RenamedExpanderConvergesWithoutAFactor) {
  const MixingMatrix natural = symmetric_exponential(3000, 2);
  const SpectralGap gap = spectral_gap(relabeled(natural, 5));
  ASSERT_TRUE(gap.converged());
  EXPECT_NEAR(gap.lambda2.value, spectral_gap(natural).lambda2.value, 1e-5);
}

TEST(SpectralGap, DirectedGraphsThatAreNotNormal) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const MixingMatrix matrix = random_directed(30, 4, seed);
    const DenseGaps expected = dense_oracle(matrix);
    expect_gap(spectral_gap(matrix), expected, 1e-8, "dense");
    GapOptions options;
    options.method = GapMethod::Iterative;
    const SpectralGap iterative = spectral_gap(matrix, options);
    if (iterative.lambda2.converged) {
      EXPECT_NEAR(iterative.lambda2.value, expected.lambda2, 1e-5) << seed;
    }
    EXPECT_LE(iterative.lambda2.lower, expected.lambda2 + 1e-12) << seed;
    EXPECT_GE(iterative.lambda2.upper, expected.lambda2 - 1e-5) << seed;
    ASSERT_TRUE(iterative.norm.converged) << seed;
    EXPECT_NEAR(iterative.norm.value, expected.norm, 1e-4) << seed;
  }
  const MixingMatrix columns = random_directed(30, 4, 7).transposed();
  expect_gap(spectral_gap(columns), dense_oracle(columns), 1e-8, "column stochastic");
}

TEST(SpectralGap, NilpotentRemaindersAreNotGuessed) {
  // W² = J but W ≠ J: all eigenvalues of W − J are 0, in Jordan blocks.
  const MixingMatrix shuffled = MixingMatrix::from_rows(
      {{{0, .5}, {1, .5}}, {{2, .5}, {3, .5}}, {{0, .5}, {1, .5}}, {{2, .5}, {3, .5}}});
  ASSERT_EQ(shuffled.after(shuffled), fully_connected(4));
  const SpectralGap gap = spectral_gap(shuffled);
  EXPECT_LE(gap.lambda2.lower, 1.0);
  EXPECT_GE(gap.lambda2.upper, 1.0 - 1e-12);
  EXPECT_NEAR(gap.norm.value, dense_oracle(shuffled).norm, 1e-12);
}

TEST(SpectralGap, GraphsInPartsHaveNone) {
  const MixingMatrix even =
      MixingMatrix::from_pattern({.shape = {600}, .entries = {{0, .5}, {2, .25}, {598, .25}}});
  EXPECT_NEAR(spectral_gap(even).lambda2.value, 0.0, 1e-15);
  const SpectralGap gap = spectral_gap(relabeled(even, 2));
  EXPECT_EQ(gap.method, GapMethod::Disconnected);
  EXPECT_EQ(gap.lambda2.value, 0.0);
  EXPECT_EQ(gap.norm.upper, 0.0);
}

TEST(SpectralGap, NegativeEigenvaluesCount) {
  // An even ring without self weights swaps its two halves for ever.
  const MixingMatrix swap =
      MixingMatrix::from_pattern({.shape = {1000}, .entries = {{1, .5}, {999, .5}}});
  EXPECT_NEAR(spectral_gap(swap).lambda2.value, 0.0, 1e-15);
  const SpectralGap gap = spectral_gap(relabeled(swap, 4));
  ASSERT_TRUE(gap.converged());
  EXPECT_NEAR(gap.lambda2.value, 0.0, 1e-9);
}

TEST(SpectralGap, RefusesWrongMatricesAndMethods) {
  const MixingMatrix wrong = MixingMatrix::from_rows({{{0, 1.0}}, {{0, 0.5}, {1, 0.75}}});
  try {
    (void)spectral_gap(wrong);
    FAIL() << "accepted a row that sums to 1.25";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "spectral gap: expected rows or columns that sum to 1, but row 1 sums to 1.25");
  }
  GapOptions options;
  options.method = GapMethod::Fourier;
  EXPECT_THROW((void)spectral_gap(star(5), options), InvalidArgument);
  options.method = GapMethod::Disconnected;
  EXPECT_THROW((void)spectral_gap(star(5), options), InvalidArgument);
  options.method = GapMethod::Dense;
  EXPECT_THROW((void)spectral_gap(ring(6000), options), InvalidArgument);
  options.method = GapMethod::Iterative;
  EXPECT_THROW((void)spectral_gap(fully_connected(100'000), options), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
