#pragma once

#include <cstddef>
#include <span>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog::ops {

/// One operand of a weighted sum.
struct Operand {
  const std::byte* data = nullptr;
  double weight = 1.0;
};

/// out[k] ← Σ_s weight_s · operand_s[k], added in the order of `operands`.
///
/// float32, float16 and bfloat16 accumulate in float32, float64 in float64; every product and
/// every sum rounds by itself. The one place of this arithmetic on the CPU, in SIMD chosen at run
/// time. `out` may be one of the operands, at the same address.
/// @param bytes a multiple of the element's size.
/// @throws UnsupportedError for other dtypes.
void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                  std::size_t bytes);

}  // namespace bluefog::ops
