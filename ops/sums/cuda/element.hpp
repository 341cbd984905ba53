#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

/// Functions that both the CPU's compiler and nvcc compile.
#if defined(__CUDACC__)
#define BF_HOST_DEVICE __host__ __device__
#else
#define BF_HOST_DEVICE
#endif

namespace bluefog::ops::cuda {

/// The same bits as another type of that size.
template <typename To, typename From>
BF_HOST_DEVICE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

/// a · b, a + b, a − b and a / b, each rounded by itself.
template <typename T>
BF_HOST_DEVICE inline T product(T a, T b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) {
    return __fmul_rn(a, b);
  } else {
    return __dmul_rn(a, b);
  }
#else
  return a * b;
#endif
}
template <typename T>
BF_HOST_DEVICE inline T sum(T a, T b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) {
    return __fadd_rn(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    return __dadd_rn(a, b);
  }
#endif
  return static_cast<T>(a + b);
}
template <typename T>
BF_HOST_DEVICE inline T difference(T a, T b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) {
    return __fsub_rn(a, b);
  } else {
    return __dsub_rn(a, b);
  }
#else
  return a - b;
#endif
}
template <typename T>
BF_HOST_DEVICE inline T quotient(T a, T b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>) {
    return __fdiv_rn(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    return __ddiv_rn(a, b);
  }
#endif
  return static_cast<T>(a / b);
}

template <typename T>
BF_HOST_DEVICE inline bool is_finite(T value) {
  return difference(value, value) == T{0};
}

/// The stored form of an element type, and the type in which its sums are formed.
template <typename T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static BF_HOST_DEVICE T load(T from) { return from; }
  static BF_HOST_DEVICE T store(T value) { return value; }
};

/// bfloat16: the upper half of a float32; stored rounded to nearest, ties to even.
struct BFloat16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static BF_HOST_DEVICE float load(std::uint16_t from) {
    return bits_as<float>(static_cast<std::uint32_t>(from) << 16U);
  }
  static BF_HOST_DEVICE std::uint16_t store(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    if (value != value) {
      return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
    }
    return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
  }
};

/// float16 (IEEE binary16), subnormals included; stored rounded to nearest, ties to even. On a
/// device by its instructions for that, on the CPU in the integer and float32 operations of its
/// lanes: with the same bits, but of NaNs.
struct Float16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static BF_HOST_DEVICE float load(std::uint16_t from) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(from));
#else
    const std::uint32_t sign = (from & 0x8000U) << 16U;
    const std::uint32_t magnitude = (from & 0x7fffU) << 13U;
    if (magnitude > 0x0f7fffffU) {  // infinite or not a number
      return bits_as<float>(magnitude | 0x7f800000U | sign);
    }
    // Multiplying by 2^112 moves the exponent's bias, of subnormals too.
    const float scaled = product(bits_as<float>(magnitude), bits_as<float>(239U << 23U));
    return bits_as<float>(bits_as<std::uint32_t>(scaled) | sign);
#endif
  }
  static BF_HOST_DEVICE std::uint16_t store(float value) {
#if defined(__CUDA_ARCH__)
    return __half_as_ushort(__float2half_rn(value));
#else
    const auto all = bits_as<std::uint32_t>(value);
    const std::uint32_t sign = all & 0x80000000U;
    const std::uint32_t bits = all ^ sign;
    std::uint32_t result = 0;
    if (bits > (143U << 23U) - 1U) {  // too large for float16, infinite or not a number
      result = bits > 0x7f800000U ? 0x7e00U : 0x7c00U;
    } else if (bits < 113U << 23U) {
      // Subnormal results: the addition of a power of two rounds at the right place.
      const std::uint32_t magic = 126U << 23U;
      result = bits_as<std::uint32_t>(sum(bits_as<float>(bits), bits_as<float>(magic))) - magic;
    } else {
      result = (bits + 0xc8000fffU + ((bits >> 13U) & 1U)) >> 13U;
    }
    return static_cast<std::uint16_t>(result | (sign >> 16U));
#endif
  }
};

}  // namespace bluefog::ops::cuda
