#include "ops/sums/average.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/sums/combine.hpp"
#include "tests/support/sum_contract.hpp"
#include "tests/unit/ops/sums.hpp"

namespace bluefog::testing {
namespace {

/// @param out one of the operands, or another buffer of that size.
void average_into(Values& out, std::vector<Values>& operands, const std::vector<double>& weights) {
  std::vector<ops::Operand> views;
  for (std::size_t s = 0; s < operands.size(); ++s) {
    views.push_back({.data = operands[s].bytes().data(), .weight = weights[s]});
  }
  ops::weighted_sum(out.dtype(), out.bytes().data(), views, out.bytes().size());
}

void mean_into(Values& out, std::vector<Values>& operands) {
  std::vector<const std::byte*> views;
  for (Values& operand : operands) {
    views.push_back(operand.bytes().data());
  }
  ops::mean(out.dtype(), out.bytes().data(), views, out.bytes().size());
}

/// Random weights whose sum is 1 but for rounding.
std::vector<double> random_row(std::size_t number, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> row(number);
  for (double& weight : row) {
    weight = static_cast<double>(random() % 1000 + 1);
  }
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& weight : row) {
    weight /= sum;
  }
  return row;
}

/// Rows that sum to 1: equal weights, random ones, and negative ones among them.
std::vector<std::vector<double>> rows_of(std::size_t number) {
  std::vector<std::vector<double>> rows{
      std::vector<double>(number, 1.0 / static_cast<double>(number)),
      random_row(number, static_cast<unsigned>(number))};
  std::vector<double> mixed(number, -0.125);
  mixed.back() = 1.0 + 0.125 * static_cast<double>(number - 1);
  rows.push_back(mixed);
  return rows;
}

TEST(Average, HardValuesOfOneToNineOperands) {
  on_every_target([] {
    for (const Dtype dtype : kFloatingDtypes) {
      for (std::size_t number = 1; number <= 9; ++number) {
        for (const std::size_t count : odd_counts()) {
          std::vector<Values> operands = hard_operands(dtype, number, count);
          Values out(dtype, count);
          for (const auto& row : rows_of(number)) {
            average_into(out, operands, row);
            ASSERT_TRUE(same_numbers(out, expected_weighted_sum(operands, row)))
                << name_of(dtype) << ", " << number << " operands";
          }
          mean_into(out, operands);
          ASSERT_TRUE(same_numbers(out, expected_mean(operands)))
              << name_of(dtype) << ", mean of " << number;
        }
      }
    }
  });
}

TEST(Average, IntoAnyOfItsOperands) {
  on_every_target([] {
    for (const Dtype dtype : kFloatingDtypes) {
      for (std::size_t number = 1; number <= 9; ++number) {
        for (std::size_t own = 0; own < number; ++own) {
          const std::vector<Values> before = hard_operands(dtype, number, 1100);
          const std::vector<double> row = random_row(number, 7);
          std::vector<Values> operands = before;
          average_into(operands[own], operands, row);
          EXPECT_TRUE(same_numbers(operands[own], expected_weighted_sum(before, row)));
          operands = before;
          mean_into(operands[own], operands);
          EXPECT_TRUE(same_numbers(operands[own], expected_mean(before)));
          for (std::size_t s = 0; s < number; ++s) {
            ASSERT_TRUE(s == own || same_numbers(operands[s], before[s]))
                << name_of(dtype) << ", operand " << s << " of " << number << " into " << own;
          }
        }
      }
    }
  });
}

/// Rows over all operands but one each, and a last one of the first operand alone.
std::vector<ops::AverageRow> rows_in_place(std::vector<Values>& operands, std::size_t own) {
  const std::size_t number = operands.size();
  std::vector<ops::AverageRow> rows(number);
  for (std::size_t i = 0; i < number; ++i) {
    const std::size_t terms = i + 1 == number ? 1 : number - 1;
    const std::vector<double> weights = random_row(terms, static_cast<unsigned>(i));
    for (std::size_t t = 0; t < terms; ++t) {
      rows[i].operands.push_back(
          {.data = operands[(i + t) % number].bytes().data(), .weight = weights[t]});
    }
    rows[i].base = *ops::base_of(rows[i].all_operands());
    rows[i].results.push_back(operands[(i + own) % number].bytes().data());
  }
  return rows;
}

/// Each has the bits that it has by itself, although results take the places of operands.
TEST(AverageRows, SideBySideInPlaceOfTheirOperands) {
  on_every_target([] {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t number : {1U, 2U, 3U, 4U, 7U}) {
        for (const std::size_t count : odd_counts()) {
          const std::vector<Values> before = hard_operands(dtype, number, count);
          std::vector<Values> sources = before;
          std::vector<Values> expected(number, Values(dtype, count));
          for (const std::size_t own : {std::size_t{0}, number - 1}) {
            std::vector<ops::AverageRow> rows = rows_in_place(sources, own);
            for (std::size_t i = 0; i < number; ++i) {
              ops::weighted_average(dtype, expected[(i + own) % number].bytes().data(),
                                    rows[i].all_operands(), rows[i].base,
                                    sources[0].bytes().size());
            }
            std::vector<Values> operands = before;
            rows = rows_in_place(operands, own);
            Values twice(dtype, count);
            rows[0].results.push_back(twice.bytes().data());
            std::vector<std::byte> memory(
                ops::ResultLog::bytes_for(number * ops::tile_bytes(number)));
            ops::ResultLog log(memory.data());
            log.begin(1);
            ops::average_rows(dtype, rows, operands[0].bytes().size(), log);
            ASSERT_TRUE(operands == expected && twice == expected[own])
                << name_of(dtype) << ", " << number << " rows of " << count;
          }
        }
      }
    }
  });
}

/// Whatever the weights: zeros of both signs, subnormals, the largest values, and infinities.
TEST(Average, EqualValuesStayThatValue) {
  on_every_target([] {
    for (const Dtype dtype : kFloatingDtypes) {
      const Values value = hard_values(dtype, 1100, 1);
      for (std::size_t number = 1; number <= 9; ++number) {
        std::vector<Values> operands(number, value);
        Values out(dtype, value.count());
        for (unsigned seed = 0; seed < 20; ++seed) {
          const auto row = seed == 0
                               ? std::vector<double>(number, 1.0 / static_cast<double>(number))
                               : random_row(number, seed);
          average_into(out, operands, row);
          ASSERT_TRUE(same_numbers(out, value)) << name_of(dtype) << ", " << number << " operands";
        }
        mean_into(out, operands);
        ASSERT_TRUE(same_numbers(out, value)) << name_of(dtype) << ", mean of " << number;
      }
    }
  });
}

double average_of(Dtype dtype, const std::vector<double>& values, const std::vector<double>& row) {
  std::vector<Values> operands;
  for (const double value : values) {
    operands.emplace_back(dtype, std::vector<double>(5, value));
  }
  Values out(dtype, 5);
  average_into(out, operands, row);
  return out[4];
}

double mean_of(Dtype dtype, const std::vector<double>& values) {
  std::vector<Values> operands;
  for (const double value : values) {
    operands.emplace_back(dtype, std::vector<double>(5, value));
  }
  Values out(dtype, 5);
  mean_into(out, operands);
  return out[4];
}

TEST(Average, NoOverflowOnTheWayToAFiniteMean) {
  on_every_target([] {
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<double> thirds(3, 1.0 / 3);
    for (const Dtype dtype : kFloatingDtypes) {
      const double largest = dtype == Dtype::Float16    ? 65504.0
                             : dtype == Dtype::BFloat16 ? 0x1.fep127
                             : dtype == Dtype::Float32  ? 0x1.fffffep127
                                                        : std::numeric_limits<double>::max();
      EXPECT_EQ(mean_of(dtype, {largest, largest, largest}), largest);
      EXPECT_EQ(average_of(dtype, {largest, largest, largest}, thirds), largest);
      EXPECT_EQ(mean_of(dtype, {largest, -largest}), 0.0);
      EXPECT_EQ(average_of(dtype, {largest, -largest}, {0.5, 0.5}), 0.0);
      EXPECT_EQ(mean_of(dtype, {0.0, largest, largest, 0.0}), largest / 2);
      const double third = Values(dtype, std::vector<double>{largest / 3})[0];
      const double unit = std::ldexp(third, dtype == Dtype::Float64 ? -52 : -23);
      EXPECT_NEAR(mean_of(dtype, {largest, largest, -largest}), third, 2 * unit);
      EXPECT_NEAR(average_of(dtype, {largest, largest, -largest}, thirds), third, 2 * unit);
      EXPECT_EQ(mean_of(dtype, {1.0, infinity, 1.0}), infinity);
      EXPECT_EQ(average_of(dtype, {infinity, infinity, 1.0}, thirds), infinity);
      EXPECT_TRUE(std::isnan(mean_of(dtype, {infinity, -infinity})));
      EXPECT_TRUE(std::isnan(average_of(dtype, {infinity, 1.0, -infinity}, thirds)));
    }
  });
}

/// Averages of like values are rounded about once: to half a unit, and a tenth more for the
/// differences, which are a thousandth of the values.
TEST(Average, LikeValuesRoundOnce) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (std::size_t number = 2; number <= 9; ++number) {
    std::vector<Values> operands(number, Values(Dtype::Float32, 1000));
    for (std::size_t k = 0; k < 1000; ++k) {
      const double center = normal(random);
      for (Values& operand : operands) {
        operand.set(k, center * (1 + 1e-3 * std::clamp(normal(random), -4.0, 4.0)));
      }
    }
    const std::vector<double> row = random_row(number, static_cast<unsigned>(number));
    Values weighted(Dtype::Float32, 1000);
    Values mean(Dtype::Float32, 1000);
    average_into(weighted, operands, row);
    mean_into(mean, operands);
    for (std::size_t k = 0; k < 1000; ++k) {
      double of_row = 0.0;
      double of_all = 0.0;
      for (std::size_t s = 0; s < number; ++s) {
        of_row += row[s] * operands[s][k];
        of_all += operands[s][k] / static_cast<double>(number);
      }
      const double bound = 0.6 * std::ldexp(1.0, std::ilogb(of_row) - 23);
      ASSERT_NEAR(weighted[k], of_row, bound) << number;
      ASSERT_NEAR(mean[k], of_all, bound) << number;
    }
  }
}

/// A row may give the own value no weight: then it has no say, however large it is.
TEST(Average, WeightOneTakesThatValueAsItIs) {
  EXPECT_EQ(average_of(Dtype::Float32, {1e30, 0.1F}, {0.0, 1.0}), 0.1F);
  EXPECT_EQ(average_of(Dtype::Float32, {3e38, 0.1F, -3e38}, {0.0, 1.0, 0.0}), 0.1F);
  EXPECT_EQ(average_of(Dtype::Float64, {0.1, 1e300}, {1.0, 0.0}), 0.1);
}

TEST(Average, BaseIsTheFirstOfTheLargestWeights) {
  const auto base = [](const std::vector<double>& weights) {
    std::vector<ops::Operand> operands;
    for (const double weight : weights) {
      operands.push_back({.weight = weight});
    }
    return ops::base_of(operands);
  };
  EXPECT_EQ(base({0.25, 0.5, 0.25}), 1U);
  EXPECT_EQ(base({0.5, 0.5}), 0U);
  EXPECT_EQ(base({1.0}), 0U);
  EXPECT_EQ(base({-1.0, 2.0}), 1U);
  EXPECT_EQ(base({0.5, 0.5 + 0.9e-9}), 1U);
  EXPECT_EQ(base({0.5, 0.5 + 1.1e-9}), std::nullopt);
  EXPECT_EQ(base({1.0, 1.0}), std::nullopt);
  EXPECT_EQ(base({0.5}), std::nullopt);
  EXPECT_EQ(base({std::nan(""), 1.0}), std::nullopt);
  EXPECT_EQ(base({}), std::nullopt);
}

TEST(Average, MeansAreOfFloatingDtypes) {
  std::byte memory{7};
  const std::byte* const operand = &memory;
  EXPECT_THROW(ops::mean(Dtype::Int8, &memory, {&operand, 1}, 1), UnsupportedError);
  EXPECT_THROW(ops::mean(Dtype::Bool, &memory, {&operand, 1}, 1), UnsupportedError);
  ops::mean(Dtype::Float32, &memory, {&operand, 1}, 0);
  EXPECT_EQ(memory, std::byte{7});
}

}  // namespace
}  // namespace bluefog::testing
