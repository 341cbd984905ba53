#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace bluefog::shm {

/// Writes as much of a text as fits, and its end.
template <std::size_t N>
void copy_text(std::array<char, N>& to, std::string_view from) {
  const std::size_t length = std::min(from.size(), N - 1);
  std::memcpy(to.data(), from.data(), length);
  to[length] = '\0';
}

/// Reads a text that a peer wrote: never trusted to end.
template <std::size_t N>
std::string_view text_of(const std::array<char, N>& from) {
  return {from.data(), ::strnlen(from.data(), N)};
}

}  // namespace bluefog::shm
