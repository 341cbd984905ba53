#pragma once

#include <cstddef>
#include <span>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog::ops {

/// out[k] ← (Σ_s operands_s[k]) / divisor, added in the order of `operands`.
///
/// float32, float16 and bfloat16 are summed and divided in float32, float64 in float64, and only
/// the quotient is rounded to the element's type. Integers add in their own type and wrap around.
/// `out` may be one of the operands, at the same address.
/// @param operands one or more.
/// @param bytes a multiple of the element's size.
/// @param divisor 1 for integers.
/// @throws UnsupportedError for bool, and for integers with a divisor.
void plain_sum(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
               std::size_t bytes, int divisor = 1);

}  // namespace bluefog::ops
