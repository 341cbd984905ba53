#include "ops/sums/fold.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "ops/sums/cuda/element.hpp"

namespace bluefog::ops {
namespace {

using Operands = std::span<const std::byte* const>;

/// Elements whose values are kept beside the operands: `out` may be any of these.
constexpr std::size_t kBlock = 512;

// Loops over blocks of plain values, which the compiler turns into vectors.
template <class Element, class Combine>
void fold_elements(std::byte* out, Operands operands, std::size_t bytes, Combine combine) {
  using Stored = typename Element::Stored;
  using Value = typename Element::Sum;
  std::array<Value, kBlock> values;
  const std::size_t count = bytes / sizeof(Stored);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t here = std::min(kBlock, count - begin);
    const auto* const first = reinterpret_cast<const Stored*>(operands[0]) + begin;
    for (std::size_t k = 0; k < here; ++k) {
      values[k] = Element::load(first[k]);
    }
    for (std::size_t s = 1; s < operands.size(); ++s) {
      const auto* const next = reinterpret_cast<const Stored*>(operands[s]) + begin;
      for (std::size_t k = 0; k < here; ++k) {
        values[k] = combine(values[k], Element::load(next[k]));
      }
    }
    auto* const to = reinterpret_cast<Stored*>(out) + begin;
    for (std::size_t k = 0; k < here; ++k) {
      to[k] = Element::store(values[k]);
    }
  }
}

template <class Element>
void fold_all(Fold rule, std::byte* out, Operands operands, std::size_t bytes) {
  using Value = typename Element::Sum;
  switch (rule) {
    case Fold::Min:
      return fold_elements<Element>(out, operands, bytes, [](Value a, Value b) {
        return (b < a) || (b != b) ? b : a;  // NOLINT: a NaN differs from itself
      });
    case Fold::Max:
      return fold_elements<Element>(out, operands, bytes, [](Value a, Value b) {
        return (a < b) || (b != b) ? b : a;  // NOLINT
      });
    case Fold::Product:
      return fold_elements<Element>(out, operands, bytes, [](Value a, Value b) {
        if constexpr (std::is_integral_v<Value>) {
          using Wide = std::common_type_t<std::make_unsigned_t<Value>, unsigned>;
          return static_cast<Value>(static_cast<Wide>(a) * static_cast<Wide>(b));
        } else {
          return a * b;
        }
      });
    default:
      break;
  }
  if constexpr (std::is_integral_v<Value>) {
    if (rule == Fold::And) {
      fold_elements<Element>(out, operands, bytes,
                             [](Value a, Value b) { return static_cast<Value>(a & b); });
    } else if (rule == Fold::Or) {
      fold_elements<Element>(out, operands, bytes,
                             [](Value a, Value b) { return static_cast<Value>(a | b); });
    } else if (rule == Fold::Xor) {
      fold_elements<Element>(out, operands, bytes,
                             [](Value a, Value b) { return static_cast<Value>(a ^ b); });
    }
  }
}

}  // namespace

std::string_view name_of(Fold rule) noexcept {
  constexpr std::array<std::string_view, 8> kNames{"sum",     "mean", "min", "max",
                                                   "product", "and",  "or",  "xor"};
  const auto number = static_cast<std::size_t>(rule);
  return number < kNames.size() ? kNames[number] : "unknown rule";
}

std::string_view why_not_folded(Fold rule, Dtype dtype) noexcept {
  switch (rule) {
    case Fold::Mean:
      return is_floating(dtype) ? "" : "float16, bfloat16, float32 or float64 for an average";
    case Fold::Sum:
      return dtype == Dtype::Bool ? "a numeric dtype for a sum" : "";
    case Fold::And:
    case Fold::Or:
    case Fold::Xor:
      return is_floating(dtype) ? "an integer or bool for an operation on bits" : "";
    default:
      return "";
  }
}

void fold(Fold rule, Dtype dtype, std::byte* out, Operands operands, std::size_t bytes) {
  switch (dtype) {
    case Dtype::Float16:
      return fold_all<cuda::Float16>(rule, out, operands, bytes);
    case Dtype::BFloat16:
      return fold_all<cuda::BFloat16>(rule, out, operands, bytes);
    case Dtype::Float32:
      return fold_all<cuda::Plain<float>>(rule, out, operands, bytes);
    case Dtype::Float64:
      return fold_all<cuda::Plain<double>>(rule, out, operands, bytes);
    case Dtype::UInt8:
    case Dtype::Bool:
      return fold_all<cuda::Plain<std::uint8_t>>(rule, out, operands, bytes);
    case Dtype::Int8:
      return fold_all<cuda::Plain<std::int8_t>>(rule, out, operands, bytes);
    case Dtype::Int16:
      return fold_all<cuda::Plain<std::int16_t>>(rule, out, operands, bytes);
    case Dtype::Int32:
      return fold_all<cuda::Plain<std::int32_t>>(rule, out, operands, bytes);
    case Dtype::Int64:
      return fold_all<cuda::Plain<std::int64_t>>(rule, out, operands, bytes);
  }
}

}  // namespace bluefog::ops
