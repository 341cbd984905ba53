#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bluefog::ops {

/// Values that share a scale.
inline constexpr std::size_t kCodeBlock = 256;

/// The blocks of so many values; the last one may be shorter.
[[nodiscard]] constexpr std::size_t code_blocks(std::size_t count) noexcept {
  return (count + kCodeBlock - 1) / kCodeBlock;
}

/// The form of a code whose scales come first, one for each block, then its values.
enum class BlockForm : std::uint8_t {
  BFloat16,  ///< no scales
  Float16,   ///< int16: the exponent of two
  Int8,      ///< float32: the largest magnitude
  /// The same; a byte holds a value of a block's first half in its low four bits, and the one as far
  /// into the second half in the high ones.
  Int4,
  Sign,  ///< float32: the mean magnitude; bit k mod 8 of byte k / 8 is set where value k is negative
};

/// Bytes of the values of so many, without scales.
[[nodiscard]] constexpr std::size_t payload_bytes(BlockForm form, std::size_t count) noexcept {
  switch (form) {
    case BlockForm::BFloat16:
    case BlockForm::Float16:
      return 2 * count;
    case BlockForm::Int8:
      return count;
    case BlockForm::Int4:
      return (count + 1) / 2;
    case BlockForm::Sign:
      return (count + 7) / 8;
  }
  return 0;
}

[[nodiscard]] constexpr std::size_t scale_bytes(BlockForm form) noexcept {
  return form == BlockForm::BFloat16 ? 0 : form == BlockForm::Float16 ? 2 : 4;
}

[[nodiscard]] constexpr std::size_t block_code_bytes(BlockForm form, std::size_t count) noexcept {
  return code_blocks(count) * scale_bytes(form) + payload_bytes(form, count);
}

/// @param code of `block_code_bytes`.
void encode_blocks(BlockForm form, std::span<const float> values, std::byte* code);
void decode_blocks(BlockForm form, const std::byte* code, std::span<float> values);

}  // namespace bluefog::ops
