#include "ops/sums/plain_sum.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/ops/sums.hpp"

namespace bluefog::testing {
namespace {

template <typename Sum>
double scalar_sum(const std::vector<Values>& operands, std::size_t k) {
  auto sum = static_cast<Sum>(operands[0][k]);
  for (std::size_t s = 1; s < operands.size(); ++s) {
    sum = sum + static_cast<Sum>(operands[s][k]);
  }
  return static_cast<double>(sum);
}

Values expected_floating(const std::vector<Values>& operands) {
  const Dtype dtype = operands[0].dtype();
  Values result(dtype, operands[0].count());
  for (std::size_t k = 0; k < result.count(); ++k) {
    result.set(k, dtype == Dtype::Float64 ? scalar_sum<double>(operands, k)
                                          : scalar_sum<float>(operands, k));
  }
  return result;
}

/// Sums modulo 2^bits, byte by byte with carries: little-endian, as the machine is.
Values expected_wrapped(std::vector<Values>& operands) {
  const Dtype dtype = operands[0].dtype();
  const std::size_t size = size_of(dtype);
  Values result(dtype, operands[0].count());
  for (std::size_t k = 0; k < result.count(); ++k) {
    unsigned carry = 0;
    for (std::size_t b = 0; b < size; ++b) {
      for (Values& operand : operands) {
        carry += std::to_integer<unsigned>(operand.bytes()[k * size + b]);
      }
      result.bytes()[k * size + b] = static_cast<std::byte>(carry & 0xffU);
      carry >>= 8U;
    }
  }
  return result;
}

/// Any bits for integers, hard values for floating dtypes.
std::vector<Values> operands_of(Dtype dtype, std::size_t number, std::size_t count) {
  std::vector<Values> operands;
  std::mt19937 random(static_cast<unsigned>(number));
  for (std::size_t s = 0; s < number; ++s) {
    if (is_floating(dtype)) {
      operands.push_back(hard_values(dtype, count, static_cast<unsigned>(100 * number + s)));
      continue;
    }
    operands.emplace_back(dtype, count);
    for (std::byte& byte : operands.back().bytes()) {
      byte = static_cast<std::byte>(random() & 0xffU);
    }
  }
  return operands;
}

Values expected_sum(std::vector<Values>& operands) {
  return is_floating(operands[0].dtype()) ? expected_floating(operands)
                                          : expected_wrapped(operands);
}

void sum_into(Values& out, std::vector<Values>& operands) {
  std::vector<const std::byte*> views;
  for (Values& operand : operands) {
    views.push_back(operand.bytes().data());
  }
  ops::plain_sum(out.dtype(), out.bytes().data(), views, out.bytes().size());
}

TEST(PlainSum, AllDtypesOneToNineOperands) {
  on_every_target([] {
    for (const Dtype dtype : kAllDtypes) {
      if (dtype == Dtype::Bool) {
        continue;
      }
      for (std::size_t number = 1; number <= 9; ++number) {
        for (const std::size_t count : odd_counts()) {
          std::vector<Values> operands = operands_of(dtype, number, count);
          Values out(dtype, count);
          sum_into(out, operands);
          ASSERT_TRUE(same_numbers(out, expected_sum(operands)))
              << name_of(dtype) << ", " << number << " operands";
        }
      }
    }
  });
}

TEST(PlainSum, IntoAnyOfItsOperands) {
  on_every_target([] {
    for (const Dtype dtype : kAllDtypes) {
      if (dtype == Dtype::Bool) {
        continue;
      }
      for (std::size_t number = 1; number <= 9; ++number) {
        for (std::size_t own = 0; own < number; ++own) {
          std::vector<Values> operands = operands_of(dtype, number, 1100);
          const std::vector<Values> before = operands;
          const Values expected = expected_sum(operands);
          sum_into(operands[own], operands);
          for (std::size_t s = 0; s < number; ++s) {
            ASSERT_TRUE(same_numbers(operands[s], s == own ? expected : before[s]))
                << name_of(dtype) << ", operand " << s << " of " << number << " into " << own;
          }
        }
      }
    }
  });
}

TEST(PlainSum, RefusesBool) {
  std::byte memory{7};
  const std::byte* const operand = &memory;
  EXPECT_THROW(ops::plain_sum(Dtype::Bool, &memory, {&operand, 1}, 1), UnsupportedError);
  ops::plain_sum(Dtype::Int8, &memory, {&operand, 1}, 0);
  EXPECT_EQ(memory, std::byte{7});
}

}  // namespace
}  // namespace bluefog::testing
