#include "ops/codes/block_codes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

// Highway compiles this file once per instruction set and chooses at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/codes/block_codes.cpp"
#include <hwy/foreach_target.h>
// foreach_target has to come first.
#include <hwy/highway.h>

#include "ops/sums/half_lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bluefog::ops::HWY_NAMESPACE {

constexpr std::uint32_t kInfinityBits = 0x7f800000U;
constexpr std::size_t kMostLanes = 64;

template <class D>
using Integers = hn::Rebind<std::int32_t, D>;

/// The magnitude whose bits are the largest: NaN above infinity above finite ones.
template <class D>
float largest_magnitude(D d, const float* values, std::size_t count) {
  const Integers<D> d32;
  const auto without_sign = hn::Set(d32, 0x7fffffff);
  auto largest = hn::Zero(d32);
  for (std::size_t k = 0; k < count; k += hn::Lanes(d)) {
    largest = hn::Max(largest, hn::And(hn::BitCast(d32, hn::LoadU(d, values + k)), without_sign));
  }
  alignas(64) std::array<std::int32_t, kMostLanes> lanes{};
  hn::StoreU(largest, d32, lanes.data());
  return std::bit_cast<float>(*std::max_element(lanes.begin(), lanes.end()));
}

template <typename Scale>
Scale scale_at(const std::byte* from) {
  Scale scale;
  std::memcpy(&scale, from, sizeof scale);
  return scale;
}

void keep_scale(auto scale, std::byte* to) { std::memcpy(to, &scale, sizeof scale); }

/// Rounds values to multiples of the largest magnitude's `levels`-th part.
class Rounding {
 public:
  Rounding(float largest, float levels) {
    // The reciprocal of a subnormal number may be infinite.
    constexpr float kSmall = 0x1p-60F;
    grow_ = largest < kSmall ? 0x1p80F : 1.0F;
    factor_ = largest == 0.0F ? 0.0F : levels / (largest * grow_);
  }
  template <class D>
  hn::Vec<Integers<D>> of(D d, const float* value) const {
    return hn::NearestInt(
        hn::Mul(hn::Mul(hn::LoadU(d, value), hn::Set(d, grow_)), hn::Set(d, factor_)));
  }

 private:
  float grow_;
  float factor_;
};

/// A multiple as a value again.
template <class D>
void store_multiple(D d, hn::Vec<Integers<D>> multiple, float levels, float largest, float* to) {
  const auto part = hn::Div(hn::ConvertTo(d, multiple), hn::Set(d, levels));
  hn::StoreU(hn::Mul(part, hn::Set(d, largest)), d, to);
}

struct Int8Block {
  static constexpr float kLevels = 127;

  template <class D>
  static void encode(D d, const float* values, std::size_t count, std::byte* scale,
                     std::byte* payload) {
    const float largest = largest_magnitude(d, values, count);
    keep_scale(largest, scale);
    const Rounding rounding(largest, kLevels);
    const hn::Rebind<std::int8_t, D> d8;
    for (std::size_t k = 0; k < count; k += hn::Lanes(d)) {
      hn::StoreU(hn::DemoteTo(d8, rounding.of(d, values + k)), d8,
                 reinterpret_cast<std::int8_t*>(payload) + k);
    }
  }
  template <class D>
  static void decode(D d, const std::byte* scale, const std::byte* payload, float* values,
                     std::size_t count) {
    const auto largest = scale_at<float>(scale);
    const hn::Rebind<std::int8_t, D> d8;
    for (std::size_t k = 0; k < count; k += hn::Lanes(d)) {
      const auto multiple = hn::PromoteTo(
          Integers<D>(), hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(payload) + k));
      store_multiple(d, multiple, kLevels, largest, values + k);
    }
  }
};

struct Int4Block {
  static constexpr float kLevels = 7;
  static constexpr int kZero = 8;

  template <class D>
  static void encode(D d, const float* values, std::size_t count, std::byte* scale,
                     std::byte* payload) {
    const float largest = largest_magnitude(d, values, count);
    keep_scale(largest, scale);
    const Rounding rounding(largest, kLevels);
    const Integers<D> d32;
    const hn::Rebind<std::uint8_t, D> d8;
    auto* const bytes = reinterpret_cast<std::uint8_t*>(payload);
    // What is no number may be anything: the scale says so.
    const auto nibble = [&](std::size_t k) {
      return hn::And(hn::Add(rounding.of(d, values + k), hn::Set(d32, kZero)), hn::Set(d32, 15));
    };
    const std::size_t half = (count + 1) / 2;
    const std::size_t pairs = count - half;
    for (std::size_t k = 0; k < pairs; k += hn::Lanes(d)) {
      const auto both = hn::Or(nibble(k), hn::ShiftLeft<4>(nibble(half + k)));
      hn::StoreU(hn::DemoteTo(d8, both), d8, bytes + k);
    }
    if (pairs < half) {
      hn::StoreU(hn::DemoteTo(d8, nibble(pairs)), d8, bytes + pairs);
    }
  }
  template <class D>
  static void decode(D d, const std::byte* scale, const std::byte* payload, float* values,
                     std::size_t count) {
    const auto largest = scale_at<float>(scale);
    const Integers<D> d32;
    const hn::Rebind<std::uint8_t, D> d8;
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(payload);
    const std::size_t half = (count + 1) / 2;
    const auto store = [&](hn::Vec<Integers<D>> nibble, std::size_t k) {
      store_multiple(d, hn::Sub(nibble, hn::Set(d32, kZero)), kLevels, largest, values + k);
    };
    for (std::size_t k = 0; k < half; k += hn::Lanes(d)) {
      const auto both = hn::PromoteTo(d32, hn::LoadU(d8, bytes + k));
      store(hn::And(both, hn::Set(d32, 15)), k);
      if (half + k < count) {
        store(hn::ShiftRight<4>(both), half + k);
      }
    }
  }
};

/// Two factors whose product is 2^exponent, each of them a normal number.
struct PowerOfTwo {
  explicit PowerOfTwo(int exponent) {
    const int part = std::clamp(exponent, -126, 126);
    first = std::ldexp(1.0F, part);
    second = std::ldexp(1.0F, exponent - part);
  }
  template <class D>
  hn::Vec<D> times(D d, hn::Vec<D> value) const {
    return hn::Mul(hn::Mul(value, hn::Set(d, first)), hn::Set(d, second));
  }
  float first;
  float second;
};

/// Finite values, none of them beyond `most`; others as they are.
template <class D>
hn::Vec<D> bounded(D d, hn::Vec<D> value, float most) {
  const auto within = hn::Min(hn::Max(value, hn::Set(d, -most)), hn::Set(d, most));
  return hn::IfThenElse(hn::IsFinite(value), within, value);
}

struct Float16Block {
  /// The largest magnitude comes to lie from 2^14 to below 2^15.
  static constexpr int kExponent = 14;
  /// The exponent of a block that is not finite.
  static constexpr std::int16_t kNotFinite = std::numeric_limits<std::int16_t>::min();
  /// The largest float16 below 2^15: that power stands for infinity where the exponent is largest.
  static constexpr float kMost = 32752;

  template <class D>
  static void encode(D d, const float* values, std::size_t count, std::byte* scale,
                     std::byte* payload) {
    const float largest = largest_magnitude(d, values, count);
    if (std::bit_cast<std::uint32_t>(largest) >= kInfinityBits) {
      keep_scale(kNotFinite, scale);
      std::memset(payload, 0, count * sizeof(std::uint16_t));
      return;
    }
    const int exponent = largest > 0.0F ? std::ilogb(largest) - kExponent : 0;
    keep_scale(static_cast<std::int16_t>(exponent), scale);
    const PowerOfTwo factor(-exponent);
    for (std::size_t k = 0; k < count; k += hn::Lanes(d)) {
      Float16Lanes::store(bounded(d, factor.times(d, hn::LoadU(d, values + k)), kMost), d,
                          reinterpret_cast<std::uint16_t*>(payload) + k);
    }
  }
  template <class D>
  static void decode(D d, const std::byte* scale, const std::byte* payload, float* values,
                     std::size_t count) {
    constexpr int kMostExponent = 200;  // of any code that `encode` writes
    const auto exponent = scale_at<std::int16_t>(scale);
    if (exponent == kNotFinite) {
      std::fill_n(values, count, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    const PowerOfTwo factor(std::clamp<int>(exponent, -kMostExponent, kMostExponent));
    for (std::size_t k = 0; k < count; k += hn::Lanes(d)) {
      const auto value = Float16Lanes::load(d, reinterpret_cast<const std::uint16_t*>(payload) + k);
      hn::StoreU(factor.times(d, value), d, values + k);
    }
  }
};

struct BFloat16Block {
  template <class D>
  static void encode(D d, const float* values, std::size_t count, std::byte* /*scale*/,
                     std::byte* payload) {
    const auto most = std::bit_cast<float>(0x7f7f0000U);
    for (std::size_t k = 0; k < count; k += hn::Lanes(d)) {
      BFloat16Lanes::store(bounded(d, hn::LoadU(d, values + k), most), d,
                           reinterpret_cast<std::uint16_t*>(payload) + k);
    }
  }
  template <class D>
  static void decode(D d, const std::byte* /*scale*/, const std::byte* payload, float* values,
                     std::size_t count) {
    for (std::size_t k = 0; k < count; k += hn::Lanes(d)) {
      hn::StoreU(BFloat16Lanes::load(d, reinterpret_cast<const std::uint16_t*>(payload) + k), d,
                 values + k);
    }
  }
};

struct SignBlock {
  template <class D>
  static void encode(D /*d*/, const float* values, std::size_t count, std::byte* scale,
                     std::byte* payload) {
    double sum = 0;
    for (std::size_t k = 0; k < count; ++k) {
      sum += std::abs(static_cast<double>(values[k]));
    }
    keep_scale(static_cast<float>(sum / static_cast<double>(count)), scale);
    for (std::size_t k = 0; k < count; k += 8) {
      unsigned bits = 0;
      for (std::size_t i = 0; i < std::min<std::size_t>(8, count - k); ++i) {
        bits |= static_cast<unsigned>(values[k + i] < 0.0F) << i;
      }
      payload[k / 8] = static_cast<std::byte>(bits);
    }
  }
  template <class D>
  static void decode(D /*d*/, const std::byte* scale, const std::byte* payload, float* values,
                     std::size_t count) {
    const auto mean = scale_at<std::uint32_t>(scale);
    for (std::size_t k = 0; k < count; k += 8) {
      const auto signs = std::to_integer<std::uint32_t>(payload[k / 8]);
      for (std::uint32_t i = 0; i < std::min<std::size_t>(8, count - k); ++i) {
        values[k + i] = std::bit_cast<float>(mean ^ (signs >> i & 1U) << 31U);
      }
    }
  }
};

/// Calls `body(d, first, count, scale, payload)` for each block of `count` values.
/// @param code bytes that are written, or read alone.
template <class Byte, class Body>
void for_each_block(BlockForm form, std::size_t count, Byte* code, const Body& body) {
  Byte* const payloads = code + code_blocks(count) * scale_bytes(form);
  for (std::size_t first = 0; first < count; first += kCodeBlock) {
    Byte* const scale = code + first / kCodeBlock * scale_bytes(form);
    Byte* const payload = payloads + payload_bytes(form, first);
    if (count - first >= kCodeBlock) {
      body(hn::CappedTag<float, kMostLanes>(), first, kCodeBlock, scale, payload);
    } else {
      body(hn::CappedTag<float, 1>(), first, count - first, scale, payload);
    }
  }
}

/// Calls `use` with the class of the form's blocks.
template <class Use>
void with_blocks_of(BlockForm form, const Use& use) {
  switch (form) {
    case BlockForm::BFloat16:
      return use(BFloat16Block());
    case BlockForm::Float16:
      return use(Float16Block());
    case BlockForm::Int8:
      return use(Int8Block());
    case BlockForm::Int4:
      return use(Int4Block());
    case BlockForm::Sign:
      return use(SignBlock());
  }
}

void encode_any(BlockForm form, std::span<const float> values, std::byte* code) {
  with_blocks_of(form, [&]<class Block>(Block) {
    for_each_block(
        form, values.size(), code,
        [&](auto d, std::size_t first, std::size_t count, std::byte* scale, std::byte* payload) {
          Block::encode(d, &values[first], count, scale, payload);
        });
  });
}

void decode_any(BlockForm form, const std::byte* code, std::span<float> values) {
  with_blocks_of(form, [&]<class Block>(Block) {
    for_each_block(
        form, values.size(), code,
        [&](auto d, std::size_t first, std::size_t count, const std::byte* scale,
            const std::byte* payload) { Block::decode(d, scale, payload, &values[first], count); });
  });
}

}  // namespace bluefog::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bluefog::ops {

HWY_EXPORT(encode_any);
HWY_EXPORT(decode_any);

void encode_blocks(BlockForm form, std::span<const float> values, std::byte* code) {
  HWY_DYNAMIC_DISPATCH(encode_any)(form, values, code);
}

void decode_blocks(BlockForm form, const std::byte* code, std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(decode_any)(form, code, values);
}

}  // namespace bluefog::ops
#endif
