#include "topology/mixing_matrix.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog {
namespace {

/// 0 hears 2, 1 hears 0 and 2, 2 hears nobody.
MixingMatrix sample() {
  return MixingMatrix::from_rows(
      {{{2, 0.25}, {0, 0.75}}, {{0, 0.5}, {2, 0.25}, {1, 0.25}}, {{2, 1.0}}});
}

std::vector<double> dense_product(const MixingMatrix& a, const MixingMatrix& b) {
  const std::size_t n = a.size();
  const std::vector<double> left = a.to_dense();
  const std::vector<double> right = b.to_dense();
  std::vector<double> product(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t j = 0; j < n; ++j) {
        product[i * n + j] += left[i * n + k] * right[k * n + j];
      }
    }
  }
  return product;
}

/// Directed, with weights that are multiples of 1/8: products are exact.
MixingMatrix random_matrix(int size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> dense(size * size);
  for (double& value : dense) {
    value = random() % 3 == 0 ? static_cast<double>(random() % 8) / 8.0 : 0.0;
  }
  return MixingMatrix::from_dense(size, dense);
}

std::string refusal(std::vector<std::vector<WeightedRank>> rows) {
  try {
    (void)MixingMatrix::from_rows(std::move(rows));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(MixingMatrix, RowsAndColumnsRise) {
  const MixingMatrix matrix = sample();
  EXPECT_EQ(matrix.size(), 3);
  EXPECT_EQ(matrix.entry_count(), 6);
  EXPECT_EQ(matrix.row(0), (std::vector<WeightedRank>{{0, 0.75}, {2, 0.25}}));
  EXPECT_EQ(matrix.column(2), (std::vector<WeightedRank>{{0, 0.25}, {1, 0.25}, {2, 1.0}}));
  EXPECT_EQ(matrix.weight(1, 0), 0.5);
  EXPECT_EQ(matrix.weight(0, 1), 0.0);
  EXPECT_EQ(matrix.in_neighbors(1), (std::vector<int>{0, 2}));
  EXPECT_EQ(matrix.out_neighbors(2), (std::vector<int>{0, 1}));
}

TEST(MixingMatrix, PlanSplitsSelfSourcesAndDestinations) {
  const NeighborPlan expected{.rank = 0,
                              .size = 3,
                              .self_weight = 0.75,
                              .sources = {{2, 0.25}},
                              .destinations = {{1, 1.0}}};
  EXPECT_EQ(sample().plan_for(0), expected);
  sample().plan_for(0).validate();
}

TEST(MixingMatrix, ARankWithoutSelfWeightHasZero) {
  const MixingMatrix swap = MixingMatrix::from_rows({{{1, 1.0}}, {{0, 1.0}}});
  EXPECT_EQ(swap.plan_for(0).self_weight, 0.0);
}

TEST(MixingMatrix, SumsAndStochasticity) {
  const MixingMatrix matrix = sample();
  EXPECT_EQ(matrix.row_sums(), (std::vector<double>{1.0, 1.0, 1.0}));
  EXPECT_EQ(matrix.column_sums(), (std::vector<double>{1.25, 0.25, 1.5}));
  EXPECT_TRUE(matrix.is_row_stochastic());
  EXPECT_FALSE(matrix.is_column_stochastic());
  EXPECT_FALSE(matrix.is_doubly_stochastic());
  EXPECT_TRUE(matrix.transposed().is_column_stochastic());
  EXPECT_FALSE(matrix.is_symmetric());
  const MixingMatrix near = MixingMatrix::from_rows({{{0, 1.0 + 1e-6}}});
  EXPECT_FALSE(near.is_row_stochastic());
  EXPECT_TRUE(near.is_row_stochastic(1e-5));
  const MixingMatrix negative = MixingMatrix::from_rows({{{0, 2.0}, {1, -1.0}}, {{1, 1.0}}});
  EXPECT_FALSE(negative.is_row_stochastic());
}

TEST(MixingMatrix, EdgesPointFromSenderToReceiver) {
  const std::vector<WeightedEdge> edges = {{0, 0, 0.75}, {2, 0, 0.25}, {0, 1, 0.5},
                                           {2, 1, 0.25}, {1, 1, 0.25}, {2, 2, 1.0}};
  EXPECT_EQ(MixingMatrix::from_edges(3, edges), sample());
}

TEST(MixingMatrix, TransposeAndDenseAgree) {
  const MixingMatrix matrix = random_matrix(9, 1);
  const std::vector<double> dense = matrix.to_dense();
  const std::vector<double> other = matrix.transposed().to_dense();
  for (int i = 0; i < 9; ++i) {
    for (int j = 0; j < 9; ++j) {
      EXPECT_EQ(dense[i * 9 + j], other[j * 9 + i]);
    }
  }
  EXPECT_EQ(matrix.transposed().transposed(), matrix);
  EXPECT_EQ(MixingMatrix::from_dense(9, dense), matrix);
}

TEST(MixingMatrix, CompositionIsTheMatrixProduct) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const MixingMatrix a = random_matrix(7, seed);
    const MixingMatrix b = random_matrix(7, seed + 100);
    EXPECT_EQ(a.after(b).to_dense(), dense_product(a, b));
    EXPECT_EQ(a.after(b).column(3), a.after(b).transposed().row(3));
  }
  // Patterns compose to a pattern, mixed forms to rows: exact halves and quarters.
  const MixingMatrix ring = topology::ring(8, topology::RingStyle::Left);
  const MixingMatrix cube = topology::hypercube(8);
  EXPECT_NE(ring.after(ring).pattern(), nullptr);
  EXPECT_EQ(ring.after(ring).to_dense(), dense_product(ring, ring));
  EXPECT_EQ(cube.after(cube).to_dense(), dense_product(cube, cube));
  EXPECT_EQ(cube.after(ring).to_dense(), dense_product(cube, ring));
  EXPECT_EQ(ring.after(random_matrix(8, 5)).to_dense(), dense_product(ring, random_matrix(8, 5)));
}

TEST(MixingMatrix, ApplyIsTheDefinition) {
  const MixingMatrix matrix = sample();
  std::vector<double> y(3);
  matrix.apply(std::vector<double>{4.0, 8.0, 16.0}, y);
  EXPECT_EQ(y, (std::vector<double>{7.0, 8.0, 16.0}));
  topology::ring(4, topology::RingStyle::Right)
      .apply(std::vector<double>{2, 4, 8, 16}, y = std::vector<double>(4));
  EXPECT_EQ(y, (std::vector<double>{9.0, 3.0, 6.0, 12.0}));
  EXPECT_THROW(matrix.apply(std::vector<double>(3), y), InvalidArgument);
}

TEST(MixingMatrix, PatternAndRowsOfTheSameMatrixAreEqual) {
  const MixingMatrix pattern = topology::exponential(11);
  const MixingMatrix rows = MixingMatrix::from_dense(11, pattern.to_dense());
  EXPECT_NE(pattern.pattern(), nullptr);
  EXPECT_EQ(rows.pattern(), nullptr);
  EXPECT_EQ(pattern, rows);
  EXPECT_NE(pattern, topology::exponential(11, 3));
  EXPECT_EQ(pattern.column_sums().size(), 11u);
  for (int rank = 0; rank < 11; ++rank) {
    EXPECT_EQ(pattern.column(rank), rows.column(rank));
    EXPECT_EQ(pattern.plan_for(rank), rows.plan_for(rank));
  }
}

TEST(MixingMatrix, RefusesWrongRows) {
  EXPECT_EQ(refusal({}), "mixing matrix: size is 0, expected at least 1");
  EXPECT_EQ(refusal({{{1, 1.0}}}), "mixing matrix: row 0 names rank 1, expected 0 to 0");
  EXPECT_EQ(refusal({{{-1, 1.0}}}), "mixing matrix: row 0 names rank -1, expected 0 to 0");
  EXPECT_EQ(refusal({{{0, 0.5}, {0, 0.5}}}), "mixing matrix: row 0 names rank 0 twice");
  EXPECT_EQ(refusal({{{0, std::numeric_limits<double>::infinity()}}}),
            "mixing matrix: W(0, 0) is inf, expected a finite weight");
}

TEST(MixingMatrix, RefusesWrongQuestions) {
  const MixingMatrix matrix = sample();
  EXPECT_THROW((void)matrix.row(3), InvalidArgument);
  EXPECT_THROW((void)matrix.column(-1), InvalidArgument);
  EXPECT_THROW((void)matrix.plan_for(3), InvalidArgument);
  EXPECT_THROW((void)matrix.weight(0, 3), InvalidArgument);
  EXPECT_THROW((void)matrix.after(MixingMatrix::identity(4)), InvalidArgument);
  EXPECT_THROW((void)MixingMatrix::identity(0), InvalidArgument);
  EXPECT_THROW((void)MixingMatrix::from_dense(2, std::vector<double>(3)), InvalidArgument);
  EXPECT_THROW((void)MixingMatrix::identity(30'000).to_dense(), InvalidArgument);
  const std::vector<WeightedEdge> outside = {{0, 3, 1.0}};
  EXPECT_THROW((void)MixingMatrix::from_edges(3, outside), InvalidArgument);
}

TEST(TranslationPattern, ShiftsAndInvertsInEachDimension) {
  const TranslationPattern grid{.shape = {3, 4}, .entries = {}};
  EXPECT_EQ(grid.shift(11, 5), 0);  // (2,3) + (1,1)
  EXPECT_EQ(grid.shift(4, 11), 3);  // (1,0) + (2,3)
  EXPECT_EQ(grid.inverse(5), 11);   // −(1,1) = (2,3)
  EXPECT_EQ(grid.inverse(0), 0);
  for (int offset = 0; offset < 12; ++offset) {
    EXPECT_EQ(grid.shift(offset, grid.inverse(offset)), 0);
  }
}

TEST(TranslationPattern, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)MixingMatrix::from_pattern({.shape = {3}, .entries = {{3, 1.0}}}),
               InvalidArgument);
  EXPECT_THROW((void)MixingMatrix::from_pattern({.shape = {0}, .entries = {}}), InvalidArgument);
  EXPECT_THROW((void)MixingMatrix::from_pattern({.shape = {1 << 16, 1 << 16}, .entries = {}}),
               InvalidArgument);
  EXPECT_THROW((void)MixingMatrix::from_pattern(
                   {.shape = {2}, .entries = {{0, std::numeric_limits<double>::quiet_NaN()}}}),
               InvalidArgument);
  EXPECT_THROW((void)compose({.shape = {4}, .entries = {}}, {.shape = {2, 2}, .entries = {}}),
               InvalidArgument);
}

}  // namespace
}  // namespace bluefog
