#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

namespace bluefog::bfrun {

/// The whole of `text` as a decimal number, or nothing when it is not one or does not fit.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

[[nodiscard]] inline std::optional<int> parse_int(std::string_view text) {
  return parse_number<int>(text);
}

/// Whether a shell takes `name` as the name of a variable.
[[nodiscard]] inline bool is_identifier(std::string_view name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace bluefog::bfrun
