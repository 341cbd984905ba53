#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bluefog {

/// Element types that buffers may hold. The numeric values travel in message
/// headers: never renumber them.
enum class Dtype : std::uint8_t {
  Float16 = 0,   ///< IEEE 754 binary16
  BFloat16 = 1,  ///< the upper half of a Float32
  Float32 = 2,   ///< IEEE 754 binary32
  Float64 = 3,   ///< IEEE 754 binary64
  UInt8 = 4,     ///< 8 bits without a sign
  Int8 = 5,      ///< 8 bits, two's complement
  Int16 = 6,     ///< 16 bits, two's complement
  Int32 = 7,     ///< 32 bits, two's complement
  Int64 = 8,     ///< 64 bits, two's complement
  Bool = 9,      ///< a byte, 0 or 1
};

/// Bytes of one element. Dtypes also arrive in messages: an unknown one counts 1.
[[nodiscard]] constexpr std::size_t size_of(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::Float64:
    case Dtype::Int64:
      return 8;
    case Dtype::Float32:
    case Dtype::Int32:
      return 4;
    case Dtype::Float16:
    case Dtype::BFloat16:
    case Dtype::Int16:
      return 2;
    default:
      return 1;
  }
}

/// The name users know: "float32", "bfloat16", …
[[nodiscard]] std::string_view name_of(Dtype dtype) noexcept;

/// True for float16, bfloat16, float32 and float64: what weighted averages accept.
[[nodiscard]] constexpr bool is_floating(Dtype dtype) noexcept { return dtype <= Dtype::Float64; }

}  // namespace bluefog
