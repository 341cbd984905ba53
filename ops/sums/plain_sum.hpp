#pragma once

#include <cstddef>
#include <span>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog::ops {

/// out[k] ← Σ_s operands_s[k], added in the order of `operands`.
///
/// float32, float16 and bfloat16 are summed in float32, float64 in float64, and only the whole sum
/// is rounded to the element's type. Integers add in their own type and wrap around.
/// `out` may be one of the operands, at the same address.
/// @param operands one or more.
/// @param bytes a multiple of the element's size.
/// @throws UnsupportedError for bool.
void plain_sum(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
               std::size_t bytes);

}  // namespace bluefog::ops
