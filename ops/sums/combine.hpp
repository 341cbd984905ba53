#pragma once

#include <cstddef>
#include <span>

#include "bluefog_cpp/dtype.hpp"
#include "ops/sums/operand.hpp"

namespace bluefog::ops {

/// out[k] ← Σ_s weight_s · operand_s[k], added in the order of `operands`: by rising rank, so that
/// ranks with the same weights get the same bits.
///
/// Weights that sum to 1 within 1e-9 make it an average (`weighted_average`), which gives equal
/// values back exactly, and no overflow on the way to a mean that has none. float32, float16 and
/// bfloat16 accumulate in float32, float64 in float64; every difference, product and sum rounds by
/// itself. In SIMD chosen at run time. `out` may be one of the operands, at the same address.
/// @param bytes a multiple of the element's size.
/// @throws UnsupportedError for other dtypes.
void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                  std::size_t bytes);

}  // namespace bluefog::ops
