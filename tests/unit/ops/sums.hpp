#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/support/values.hpp"

namespace bluefog::testing {

/// Runs `body` once for each instruction set that was compiled and that this CPU has.
void on_every_target(const std::function<void()>& body);

/// Elements of a floating dtype that are hard to convert or to add: zeros of both signs,
/// infinities, NaN, subnormals, the largest and smallest ones, neighbours of 1, and any others.
[[nodiscard]] Values hard_values(Dtype dtype, std::size_t count, unsigned seed);

/// `number` of them.
[[nodiscard]] std::vector<Values> hard_operands(Dtype dtype, std::size_t number, std::size_t count);

/// Every float16 or bfloat16, in the order of their bits.
[[nodiscard]] Values all_halves(Dtype dtype);

/// Compares like Values' ==, but a NaN equals any other.
[[nodiscard]] ::testing::AssertionResult same_numbers(const Values& actual, const Values& expected);

/// Counts of elements around the lengths of vectors and of the blocks of many operands.
[[nodiscard]] std::vector<std::size_t> odd_counts();

}  // namespace bluefog::testing
