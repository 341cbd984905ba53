#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bluefog {

/// A text of a user's file, safe to print on one line: '?' for what a terminal might obey.
[[nodiscard]] inline std::string printable(std::string text) {
  constexpr char kDelete = 127;
  for (char& c : text) {
    const bool is_control = (c >= 0 && c < ' ') || c == kDelete;
    c = is_control ? '?' : c;
  }
  return text;
}

/// A word of a user's file or command line in quotes, safe to print: its begin, and '?' for what a
/// terminal might obey or not show.
[[nodiscard]] inline std::string quoted(std::string_view word, std::size_t limit = 60) {
  std::string text = "'";
  for (const char c : word.substr(0, limit)) {
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text + (word.size() > limit ? "...'" : "'");
}

}  // namespace bluefog
