#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/store.hpp"

namespace bluefog {

/// For a look at a key.
inline Deadline at_once() { return Deadline::after(std::chrono::nanoseconds(1)); }

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string words_of(const Store::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// "rank 1 has not come", "ranks 1, 2 have not come".
inline std::string words_of_missing(const std::vector<int>& ranks) {
  constexpr std::size_t kMostNames = 16;
  const bool is_one = ranks.size() == 1;
  return fmt::format("rank{} {}{} ha{} not come", is_one ? "" : "s",
                     fmt::join(std::span(ranks).first(std::min(ranks.size(), kMostNames)), ", "),
                     ranks.size() > kMostNames ? ", ..." : "", is_one ? "s" : "ve");
}

}  // namespace bluefog
