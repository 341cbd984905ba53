// Lanes of half precision in float32, for each instruction set: included once per Highway target.
#if defined(BLUEFOG_OPS_HALF_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BLUEFOG_OPS_HALF_LANES_INL
#undef BLUEFOG_OPS_HALF_LANES_INL
#else
#define BLUEFOG_OPS_HALF_LANES_INL
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "bluefog_cpp/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace bluefog::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The stored form of an element type, and the type in which its sums are formed.
template <typename T>
struct Plain {
  using Stored = T;
  using Sum = T;
  template <class D>
  static hn::Vec<D> load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static void store(hn::Vec<D> sum, D d, T* to) {
    hn::StoreU(sum, d, to);
  }
  /// Like `store`, quicker: for sums that are finite.
  template <class D>
  static void store_finite(hn::Vec<D> sum, D d, T* to) {
    hn::StoreU(sum, d, to);
  }
};

/// bfloat16: the upper half of a float32; stored rounded to nearest, ties to even.
struct BFloat16Lanes {
  using Stored = std::uint16_t;
  using Sum = float;
  template <class D>
  static hn::Vec<D> load(D d, const std::uint16_t* from) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
  }
  template <class D>
  static void store(hn::Vec<D> sum, D /*d*/, std::uint16_t* to) {
    const hn::Rebind<std::uint32_t, D> d32;
    const auto quiet = hn::Or(hn::ShiftRight<16>(hn::BitCast(d32, sum)), hn::Set(d32, 0x40U));
    const auto is_nan = hn::RebindMask(d32, hn::Ne(sum, sum));
    store_bits(d32, hn::IfThenElse(is_nan, quiet, rounded(d32, sum)), to);
  }
  template <class D>
  static void store_finite(hn::Vec<D> sum, D /*d*/, std::uint16_t* to) {
    const hn::Rebind<std::uint32_t, D> d32;
    store_bits(d32, rounded(d32, sum), to);
  }

 private:
  template <class D32, class V>
  static hn::Vec<D32> rounded(D32 d32, V sum) {
    const auto bits = hn::BitCast(d32, sum);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1U));
    return hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffU))));
  }
  template <class D32>
  static void store_bits(D32 /*d32*/, hn::Vec<D32> bits, std::uint16_t* to) {
    const hn::Rebind<std::uint16_t, D32> d16;
    const hn::Rebind<std::int32_t, D32> di32;
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, bits)), d16, to);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

/// float16 (IEEE binary16), subnormals included, by the processor's conversions; stored rounded to
/// nearest, ties to even.
struct Float16Lanes {
  using Stored = std::uint16_t;
  using Sum = float;
  template <class D>
  static hn::Vec<D> load(D d, const std::uint16_t* from) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> half;
    return hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(d16, from)));
  }
  template <class D>
  static void store(hn::Vec<D> sum, D /*d*/, std::uint16_t* to) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> half;
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(half, sum)), d16, to);
  }
  template <class D>
  static void store_finite(hn::Vec<D> sum, D d, std::uint16_t* to) {
    store(sum, d, to);
  }
};

#else

/// float16 (IEEE binary16), subnormals included; stored rounded to nearest, ties to even. Written
/// in integer and float32 operations, with the bits of processors that convert by themselves.
struct Float16Lanes {
  using Stored = std::uint16_t;
  using Sum = float;
  template <class D>
  static hn::Vec<D> load(D d, const std::uint16_t* from) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    const auto half = hn::PromoteTo(d32, hn::LoadU(d16, from));
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d32, 0x8000U)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(d32, 0x7fffU)));
    // Multiplying by 2^112 moves the exponent's bias, of subnormals too.
    const auto scaled = hn::BitCast(
        d32, hn::Mul(hn::BitCast(d, magnitude), hn::BitCast(d, hn::Set(d32, 239U << 23U))));
    const auto is_special = hn::Gt(hn::BitCast(hn::Rebind<std::int32_t, D>(), magnitude),
                                   hn::Set(hn::Rebind<std::int32_t, D>(), 0x0f7fffff));
    const auto special = hn::Or(magnitude, hn::Set(d32, 0x7f800000U));
    const auto result = hn::IfThenElse(hn::RebindMask(d32, is_special), special, scaled);
    return hn::BitCast(d, hn::Or(result, sign));
  }
  template <class D>
  static void store(hn::Vec<D> sum, D d, std::uint16_t* to) {
    const hn::Rebind<std::uint32_t, D> d32;
    const hn::Rebind<std::int32_t, D> di32;
    const auto bits = hn::And(hn::BitCast(d32, sum), hn::Set(d32, 0x7fffffffU));
    // Infinite or not a number.
    const auto is_nan = hn::Gt(hn::BitCast(di32, bits), hn::Set(di32, 0x7f800000));
    store_rounded(
        d, sum,
        hn::IfThenElse(hn::RebindMask(d32, is_nan), hn::Set(d32, 0x7e00U), hn::Set(d32, 0x7c00U)),
        to);
  }
  template <class D>
  static void store_finite(hn::Vec<D> sum, D d, std::uint16_t* to) {
    store_rounded(d, sum, hn::Set(hn::Rebind<std::uint32_t, D>(), 0x7c00U), to);
  }

 private:
  /// @param large the bits of what is too large for float16, without the sign.
  template <class D>
  static void store_rounded(D d, hn::Vec<D> sum, hn::Vec<hn::Rebind<std::uint32_t, D> > large,
                            std::uint16_t* to) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    const hn::Rebind<std::int32_t, D> di32;
    const auto all = hn::BitCast(d32, sum);
    const auto sign = hn::And(all, hn::Set(d32, 0x80000000U));
    const auto bits = hn::Xor(all, sign);
    const auto as_int = hn::BitCast(di32, bits);
    // Subnormal results: the addition of a power of two rounds at the right place.
    const auto magic = hn::Set(d32, 126U << 23U);
    const auto subnormal =
        hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(d, bits), hn::BitCast(d, magic))), magic);
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(d32, 1U));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(bits, hn::Set(d32, 0xc8000fffU)), odd));
    auto result = hn::IfThenElse(hn::RebindMask(d32, hn::Lt(as_int, hn::Set(di32, 113 << 23))),
                                 subnormal, normal);
    result = hn::IfThenElse(hn::RebindMask(d32, hn::Gt(as_int, hn::Set(di32, (143 << 23) - 1))),
                            large, result);
    result = hn::Or(result, hn::ShiftRight<16>(sign));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, result)), d16, to);
  }
};

#endif

/// Calls `call` with the lanes of a floating dtype.
template <class Call>
void with_floating_lanes(Dtype dtype, const Call& call) {
  switch (dtype) {
    case Dtype::Float32:
      return call(Plain<float>());
    case Dtype::Float64:
      return call(Plain<double>());
    case Dtype::Float16:
      return call(Float16Lanes());
    default:
      return call(BFloat16Lanes());
  }
}

}  // namespace bluefog::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
