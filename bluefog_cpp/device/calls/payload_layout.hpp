#pragma once

#include <cstddef>
#include <cstdint>

#include "bluefog_cpp/base/alignment.hpp"

namespace bluefog {

/// Lays payloads one behind the other in memory of a device, as kernels read them best: each lies
/// to a pack of theirs as the memory does that it comes from or is added to.
class PayloadLayout {
 public:
  /// @param like memory that the payload lies as; null: at the beginning of a pack.
  /// @return where the payload of `bytes` bytes begins.
  std::size_t add(std::size_t bytes, const std::byte* like) noexcept {
    const std::size_t begin = end_ + reinterpret_cast<std::uintptr_t>(like) % kDevicePack;
    end_ = round_up(begin + bytes, kDeviceAlignment);
    return begin;
  }

  /// The memory that all of them take, and no more: a multiple of `kDeviceAlignment`.
  [[nodiscard]] std::size_t bytes() const noexcept { return end_; }

 private:
  std::size_t end_ = 0;
};

}  // namespace bluefog
