#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog::ops::cuda {

enum class SumRule : std::uint8_t {
  Weighted,  ///< as `weighted_sum`
  Plain,     ///< as `plain_sum` and `mean`
};

/// The fat binary with the sum kernels; empty in a build without CUDA.
[[nodiscard]] std::span<const std::byte> sum_kernels_image() noexcept;

/// The kernel in that image that forms such sums, for `SumArguments`.
/// @throws UnsupportedError for weighted sums of other dtypes than the floating ones, and for bool.
[[nodiscard]] const char* sum_kernel_name(SumRule rule, Dtype dtype);

}  // namespace bluefog::ops::cuda
