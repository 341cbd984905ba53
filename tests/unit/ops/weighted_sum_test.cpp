#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/sums/combine.hpp"
#include "tests/support/sum_contract.hpp"
#include "tests/unit/ops/sums.hpp"

namespace bluefog::testing {
namespace {

/// @param out one of the operands, or another buffer of that size.
void sum_into(Values& out, std::vector<Values>& operands, const std::vector<double>& weights) {
  std::vector<ops::Operand> views;
  for (std::size_t s = 0; s < operands.size(); ++s) {
    views.push_back({.data = operands[s].bytes().data(), .weight = weights[s]});
  }
  ops::weighted_sum(out.dtype(), out.bytes().data(), views, out.bytes().size());
}

std::vector<double> weights_of(std::size_t number) {
  const std::vector<double> all{0.25, 1.0, -0.5, 1.0 / 3, 0.1, 2.0, 0.7, -1.0, 0.0};
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(number)};
}

TEST(WeightedSum, HardValuesOfOneToNineOperands) {
  on_every_target([] {
    for (const Dtype dtype : kFloatingDtypes) {
      for (std::size_t number = 1; number <= 9; ++number) {
        for (const std::size_t count : odd_counts()) {
          std::vector<Values> operands = hard_operands(dtype, number, count);
          const std::vector<double> weights = weights_of(number);
          Values out(dtype, count);
          sum_into(out, operands, weights);
          ASSERT_TRUE(same_numbers(out, expected_weighted_sum(operands, weights)))
              << name_of(dtype) << ", " << number << " operands";
        }
      }
    }
  });
}

TEST(WeightedSum, IntoAnyOfItsOperands) {
  on_every_target([] {
    for (const Dtype dtype : kFloatingDtypes) {
      for (std::size_t number = 1; number <= 9; ++number) {
        for (std::size_t own = 0; own < number; ++own) {
          std::vector<Values> operands = hard_operands(dtype, number, 1100);
          const std::vector<Values> before = operands;
          const std::vector<double> weights = weights_of(number);
          const Values expected = expected_weighted_sum(operands, weights);
          sum_into(operands[own], operands, weights);
          for (std::size_t s = 0; s < number; ++s) {
            ASSERT_TRUE(same_numbers(operands[s], s == own ? expected : before[s]))
                << name_of(dtype) << ", operand " << s << " of " << number << " into " << own;
          }
        }
      }
    }
  });
}

/// The result with weight 1 is the value read: no half changes, NaN stays NaN, −0 stays −0.
TEST(WeightedSum, EveryHalfSurvives) {
  on_every_target([] {
    for (const Dtype dtype : {Dtype::Float16, Dtype::BFloat16}) {
      std::vector<Values> operands{all_halves(dtype)};
      Values out(dtype, operands[0].count());
      sum_into(out, operands, {1.0});
      ASSERT_TRUE(same_numbers(out, operands[0])) << name_of(dtype);
    }
  });
}

/// Halves of all values, and values plus half a unit in the last place: every tie there is.
TEST(WeightedSum, EveryHalfScaledRoundsToNearestEven) {
  on_every_target([] {
    for (const Dtype dtype : {Dtype::Float16, Dtype::BFloat16}) {
      for (const double weight : {0.5, 0.25, 0.375, 1.5, 1.0 / 3, 1024.0, 0x1p-20, -0x1p-12}) {
        std::vector<Values> operands{all_halves(dtype)};
        Values out(dtype, operands[0].count());
        sum_into(out, operands, {weight});
        ASSERT_TRUE(same_numbers(out, expected_weighted_sum(operands, {{weight}})))
            << name_of(dtype) << " times " << weight;
      }
      std::vector<Values> operands{all_halves(dtype), all_halves(dtype)};
      const double half_unit = dtype == Dtype::Float16 ? 0x1p-11 : 0x1p-8;
      Values out(dtype, operands[0].count());
      sum_into(out, operands, {1.0, half_unit});
      ASSERT_TRUE(same_numbers(out, expected_weighted_sum(operands, {{1.0, half_unit}})))
          << name_of(dtype);
    }
  });
}

/// Written out by hand, beside the oracle.
TEST(WeightedSum, TiesOverflowAndSubnormalsByHand) {
  on_every_target([] {
    const auto sum = [](Dtype dtype, double a, double b) {
      std::vector<Values> operands{Values(dtype, std::vector<double>{a}),
                                   Values(dtype, std::vector<double>{b})};
      Values out(dtype, 1);
      sum_into(out, operands, {1.0, 1.0});
      return out[0];
    };
    EXPECT_EQ(sum(Dtype::Float16, 2048, 1), 2048);  // a tie, to even
    EXPECT_EQ(sum(Dtype::Float16, 2050, 1), 2052);
    EXPECT_EQ(sum(Dtype::Float16, 65504, 8), 65504);
    EXPECT_EQ(sum(Dtype::Float16, 65504, 16), HUGE_VAL);
    EXPECT_EQ(sum(Dtype::Float16, 0x1p-24, 0x1p-24), 0x1p-23);
    EXPECT_EQ(sum(Dtype::Float16, 0x1p-14, -0x1p-24), 0x1p-14 - 0x1p-24);
    EXPECT_EQ(sum(Dtype::BFloat16, 256, 1), 256);
    EXPECT_EQ(sum(Dtype::BFloat16, 258, 1), 260);
    EXPECT_TRUE(std::isnan(sum(Dtype::BFloat16, HUGE_VAL, -HUGE_VAL)));
    EXPECT_TRUE(std::isnan(sum(Dtype::Float16, HUGE_VAL, -HUGE_VAL)));
  });
}

TEST(WeightedSum, MemoryAtOddAddressesAndNothingBehindIt) {
  on_every_target([] {
    for (const std::size_t count : odd_counts()) {
      std::vector<std::byte> memory(count * 4 + 5, std::byte{0x5a});
      Values a = hard_values(Dtype::Float32, count, 1);
      std::vector<Values> operands{a};
      const ops::Operand operand{.data = a.bytes().data(), .weight = 0.5};
      ops::weighted_sum(Dtype::Float32, memory.data() + 4, {&operand, 1}, count * 4);
      Values out(Dtype::Float32, count);
      std::copy_n(memory.data() + 4, count * 4, out.bytes().data());
      ASSERT_TRUE(same_numbers(out, expected_weighted_sum(operands, {{0.5}})));
      ASSERT_EQ(memory[3], std::byte{0x5a});
      ASSERT_EQ(memory.back(), std::byte{0x5a});
    }
  });
}

TEST(WeightedSum, NothingToDoAndWrongDtypes) {
  std::byte memory{7};
  const ops::Operand operand{.data = &memory};
  ops::weighted_sum(Dtype::Float32, &memory, {&operand, 1}, 0);
  EXPECT_EQ(memory, std::byte{7});
  for (const Dtype dtype : kAllDtypes) {
    if (!is_floating(dtype)) {
      EXPECT_THROW(ops::weighted_sum(dtype, &memory, {&operand, 1}, 1), UnsupportedError);
    }
  }
}

}  // namespace
}  // namespace bluefog::testing
