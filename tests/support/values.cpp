#include "tests/support/values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace bluefog::testing {
namespace {

/// A binary floating format of 16 bits.
struct Format {
  int mantissa_bits;
  int least_exponent;  // of normal numbers
  std::uint16_t infinity;
};
constexpr Format kFloat16{10, -14, 0x7c00};
constexpr Format kBFloat16{7, -126, 0x7f80};

std::uint16_t encode(double value, const Format& format) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(format.infinity | (1 << (format.mantissa_bits - 1)));
  }
  if (std::isinf(value)) {
    return static_cast<std::uint16_t>(sign | format.infinity);
  }
  const int exponent = magnitude == 0 ? format.least_exponent
                                      : std::max(std::ilogb(magnitude), format.least_exponent);
  // Units of the last place are rounded; a carry into the next exponent comes out right by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const auto bits = static_cast<std::uint32_t>(units) +
                    (static_cast<std::uint32_t>(exponent - format.least_exponent)
                     << static_cast<std::uint32_t>(format.mantissa_bits));
  return static_cast<std::uint16_t>(sign | std::min<std::uint32_t>(bits, format.infinity));
}

double decode(std::uint16_t bits, const Format& format) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int magnitude = bits & 0x7fff;
  if (magnitude > format.infinity) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (magnitude == format.infinity) {
    return sign * std::numeric_limits<double>::infinity();
  }
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - 1 + format.least_exponent -
                                      format.mantissa_bits);
}

template <typename Visit>
auto with_type(Dtype dtype, Visit visit) {
  switch (dtype) {
    case Dtype::Float32:
      return visit(float{});
    case Dtype::Float64:
      return visit(double{});
    case Dtype::Int8:
      return visit(std::int8_t{});
    case Dtype::Int16:
      return visit(std::int16_t{});
    case Dtype::Int32:
      return visit(std::int32_t{});
    case Dtype::Int64:
      return visit(std::int64_t{});
    default:
      return visit(std::uint8_t{});
  }
}

}  // namespace

std::uint16_t to_float16(double value) { return encode(value, kFloat16); }
std::uint16_t to_bfloat16(double value) { return encode(value, kBFloat16); }
double from_float16(std::uint16_t bits) { return decode(bits, kFloat16); }
double from_bfloat16(std::uint16_t bits) { return decode(bits, kBFloat16); }

Values::Values(Dtype dtype, std::size_t count) : dtype_(dtype), bytes_(count * size_of(dtype)) {}

Values::Values(Dtype dtype, std::span<const double> values) : Values(dtype, values.size()) {
  for (std::size_t k = 0; k < values.size(); ++k) {
    set(k, values[k]);
  }
}

double Values::operator[](std::size_t k) const {
  const std::byte* const at = bytes_.data() + k * size_of(dtype_);
  if (dtype_ == Dtype::Float16 || dtype_ == Dtype::BFloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return dtype_ == Dtype::Float16 ? from_float16(bits) : from_bfloat16(bits);
  }
  return with_type(dtype_, [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  });
}

void Values::set(std::size_t k, double value) {
  std::byte* const at = bytes_.data() + k * size_of(dtype_);
  if (dtype_ == Dtype::Float16 || dtype_ == Dtype::BFloat16) {
    const std::uint16_t bits = dtype_ == Dtype::Float16 ? to_float16(value) : to_bfloat16(value);
    std::memcpy(at, &bits, sizeof bits);
    return;
  }
  with_type(dtype_, [at, value](auto type) {
    const auto typed = static_cast<decltype(type)>(value);
    std::memcpy(at, &typed, sizeof typed);
  });
}

std::vector<double> Values::to_doubles() const {
  std::vector<double> values(count());
  for (std::size_t k = 0; k < values.size(); ++k) {
    values[k] = (*this)[k];
  }
  return values;
}

BufferView Values::view() {
  return {.data = bytes_.data(), .count = static_cast<std::int64_t>(count()), .dtype = dtype_};
}

Values thirds(Dtype dtype, std::size_t count, int rank) {
  Values values(dtype, count);
  for (std::size_t k = 0; k < count; ++k) {
    values.set(k,
               (static_cast<double>((k * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50) / 3);
  }
  return values;
}

Values small_integers(Dtype dtype, std::size_t count, int rank) {
  Values values(dtype, count);
  const auto own = static_cast<std::size_t>(rank);
  for (std::size_t k = 0; k < count; ++k) {
    values.set(k, static_cast<double>((own * 5 + k * 3) % (dtype == Dtype::Bool ? 2 : 8)));
  }
  return values;
}

}  // namespace bluefog::testing
