#pragma once

#include <span>
#include <vector>

#include "tests/support/values.hpp"

namespace bluefog::testing {

/// The contract of weighted sums, element by element and step by step: what every operation,
/// transport and device has to give, to the bit.
/// @param operands by rising rank, of one floating dtype and count. @param weights theirs.
[[nodiscard]] Values expected_weighted_sum(std::span<const Values> operands,
                                           std::span<const double> weights);

/// The same of means, as `allreduce` forms them.
[[nodiscard]] Values expected_mean(std::span<const Values> operands);

}  // namespace bluefog::testing
