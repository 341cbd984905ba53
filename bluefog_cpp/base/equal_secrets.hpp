#pragma once

#include <array>
#include <cstddef>

namespace bluefog {

/// Whether two secrets are the same. Takes as long for every wrong one, so that time does not tell
/// how much of it is right.
template <typename Byte, std::size_t kBytes>
[[nodiscard]] bool equal_secrets(const std::array<Byte, kBytes>& one,
                                 const std::array<Byte, kBytes>& other) noexcept {
  unsigned difference = 0;
  for (std::size_t i = 0; i < kBytes; ++i) {
    difference |= static_cast<unsigned char>(one[i] ^ other[i]);
  }
  return difference == 0;
}

}  // namespace bluefog
