#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// Calls `body(value, first, count)` for each parameter's place, with a value of their type, float32 or
/// float64: between them lie zeros, which stay.
template <typename Body>
void for_each_parameter(const Bucket& bucket, const Body& body) {
  for (const Segment& segment : bucket.segments()) {
    const auto first = static_cast<std::size_t>(segment.offset);
    const auto count = static_cast<std::size_t>(segment.count());
    bucket.flat().scalar_type() == at::kDouble ? body(double(), first, count)
                                               : body(float(), first, count);
  }
}

/// The value that is coded for one of float32 or float64; of finite numbers a finite one.
[[nodiscard]] inline float coded_value(double value) noexcept {
  const auto rounded = static_cast<float>(value);
  return std::isinf(rounded) && std::isfinite(value)
             ? std::copysign(std::numeric_limits<float>::max(), rounded)
             : rounded;
}

/// The largest magnitude of float32 values, by its bits, whose order as numbers is that of magnitudes:
/// a loop over it becomes one of vectors.
class LargestMagnitude {
 public:
  void note(float value) noexcept {
    bits_ = std::max(bits_, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
  }
  /// Whether all values are.
  [[nodiscard]] bool is_finite() const noexcept { return bits_ < kInfinity; }

 private:
  static constexpr std::uint32_t kInfinity = 0x7f800000U;
  std::uint32_t bits_ = 0;
};

/// to = x − copy, and zeros between the parameters.
void subtract(const Bucket& bucket, const at::Tensor& copy, std::span<float> to);

/// The bytes of a bucket's values as they are.
[[nodiscard]] std::size_t raw_bytes(const Bucket& bucket);
/// copy = the parameters among raw bytes of the bucket's type, which may lie at any address.
/// @return whether all of them are finite.
bool take_raw(const Bucket& bucket, std::span<const std::byte> raw, const at::Tensor& copy);

/// A number of the parameters' values in `values`, the same on every machine; those of two models
/// that differ are equal once in 2^64. @param seed that of other values, which it goes on from.
[[nodiscard]] std::uint64_t number_of_values(const Bucket& bucket, const at::Tensor& values,
                                             std::uint64_t seed);

/// @throws UnsupportedError naming rank, code and bucket where its parameters are on a device, or
///   not of float32 or float64.
void check_coded(const Context& context, const Bucket& bucket, std::string_view code);

}  // namespace bluefog::optimizers
