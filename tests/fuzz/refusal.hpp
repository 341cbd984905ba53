#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace bluefog::testing {

/// Ends the process where a message is longer than a user reads, or has control characters, which
/// a terminal might obey.
inline void check_words(std::string_view words) {
  constexpr std::size_t kLongest = 2000;
  const auto is_control = [](char c) { return (c >= '\0' && c < ' ' && c != '\n') || c == '\x7f'; };
  if (words.size() > kLongest || std::ranges::any_of(words, is_control)) {
    fmt::print(stderr, "a message of {} bytes: {}\n", words.size(), words);
    std::abort();
  }
}

/// Bytes that `parse` refuses by an exception `Refusal` are no finding; any other exception is one.
template <typename Refusal, typename Parse>
void parse_or_refuse(const Parse& parse) {
  try {
    parse();
  } catch (const Refusal& refusal) {
    check_words(refusal.what());
  }
}

/// Ends the process where something does not hold of what a parser returned.
inline void check(bool holds) {
  if (!holds) {
    std::abort();
  }
}

}  // namespace bluefog::testing
