#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog::ops {

/// What becomes of the values that ranks have for the same element.
enum class Fold : std::uint8_t { Sum, Mean, Min, Max, Product, And, Or, Xor };

/// "sum", "mean", "min", …
[[nodiscard]] std::string_view name_of(Fold rule) noexcept;

/// Why values of `dtype` cannot be folded by `rule`: the words of what was expected; empty if they
/// can.
[[nodiscard]] std::string_view why_not_folded(Fold rule, Dtype dtype) noexcept;

/// out[k] ← operands_0[k] ∘ operands_1[k] ∘ …, in the order of `operands`, for the rules from Min
/// on.
///
/// A minimum or maximum with a NaN among its values is NaN. Products of float16, bfloat16 and
/// float32 are formed in float32 and rounded once; integers multiply in their own type and wrap
/// around. And, Or and Xor are those of bits.
/// `out` may be one of the operands, at the same address.
/// @param operands one or more. @param bytes a multiple of the element's size.
void fold(Fold rule, Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
          std::size_t bytes);

}  // namespace bluefog::ops
