#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"

namespace bluefog::testing {

inline constexpr Dtype kAllDtypes[] = {
    Dtype::Float16, Dtype::BFloat16, Dtype::Float32, Dtype::Float64, Dtype::UInt8,
    Dtype::Int8,    Dtype::Int16,    Dtype::Int32,   Dtype::Int64,   Dtype::Bool};
inline constexpr Dtype kFloatingDtypes[] = {Dtype::Float16, Dtype::BFloat16, Dtype::Float32,
                                            Dtype::Float64};

/// `count` elements, less under sanitizers, whose shadow memory makes large buffers slow.
/// Slots are smaller there too, so that as many chunks are sent (cmake/BluefogTests.cmake).
[[nodiscard]] constexpr std::size_t large(std::size_t count) noexcept {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return count / 8;
#else
  return count;
#endif
}

/// The number of ranks, fewer under ThreadSanitizer: for buffers that cannot be small there either.
[[nodiscard]] constexpr int few(int ranks, [[maybe_unused]] int sanitized = 2) noexcept {
#if defined(__SANITIZE_THREAD__)
  return ranks < sanitized ? ranks : sanitized;
#else
  return ranks;
#endif
}

/// Elements of any dtype, given and read as doubles. Rounds to nearest, ties to even.
class Values {
 public:
  Values(Dtype dtype, std::size_t count);
  Values(Dtype dtype, std::span<const double> values);

  [[nodiscard]] Dtype dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::size_t count() const noexcept { return bytes_.size() / size_of(dtype_); }
  [[nodiscard]] double operator[](std::size_t k) const;
  void set(std::size_t k, double value);
  [[nodiscard]] std::vector<double> to_doubles() const;
  [[nodiscard]] std::vector<std::byte>& bytes() noexcept { return bytes_; }
  [[nodiscard]] BufferView view();

  /// Equal if the bits are.
  friend bool operator==(const Values& a, const Values& b) {
    return a.dtype_ == b.dtype_ && a.bytes_ == b.bytes_;
  }

 private:
  Dtype dtype_;
  std::vector<std::byte> bytes_;
};

/// A rank's values before a call: small whole numbers, exact in every dtype, 0 and 1 for bool.
[[nodiscard]] Values small_integers(Dtype dtype, std::size_t count, int rank);

/// The same with values that round: thirds of whole numbers.
[[nodiscard]] Values thirds(Dtype dtype, std::size_t count, int rank);

[[nodiscard]] std::uint16_t to_float16(double value);
[[nodiscard]] std::uint16_t to_bfloat16(double value);
[[nodiscard]] double from_float16(std::uint16_t bits);
[[nodiscard]] double from_bfloat16(std::uint16_t bits);

}  // namespace bluefog::testing
