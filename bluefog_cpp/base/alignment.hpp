#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace bluefog {

/// Bytes of a cache line.
inline constexpr std::size_t kCacheLine = 64;
/// Bytes of a page of the host's memory.
inline constexpr std::size_t kPage = 4096;
/// Memory of a device begins at multiples of this, as `cudaMalloc` has it.
inline constexpr std::size_t kDeviceAlignment = 256;
/// CUDA shows other processes whole pages of this size, with whatever lies in them.
inline constexpr std::size_t kDevicePage = std::size_t{2} << 20U;
/// Bytes that kernels read at once, where all of their operands lie alike.
inline constexpr std::size_t kDevicePack = 16;

/// The least multiple of `unit` that is at least `count`.
template <std::integral Count>
[[nodiscard]] constexpr Count round_up(Count count, std::type_identity_t<Count> unit) noexcept {
  return (count + unit - 1) / unit * unit;
}

}  // namespace bluefog
