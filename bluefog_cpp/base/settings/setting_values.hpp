#pragma once

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bluefog_cpp/settings.hpp"

namespace bluefog {

// How the values of settings are read. Each function throws InvalidArgument with the variable's
// name, its value and what was expected.

[[noreturn]] void refuse_value(std::string_view name, std::string_view value,
                               std::string_view expected);

[[nodiscard]] std::string lower_case(std::string_view text);

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

template <typename Integer>
Integer parse_integer(std::string_view name, std::string_view value, Integer low, Integer high) {
  const auto number = parse_number<Integer>(value);
  if (!number || *number < low || *number > high) {
    refuse_value(name, value, fmt::format("an integer from {} to {}", low, high));
  }
  return *number;
}

/// One of a few words. `expected` lists them, for the message.
template <typename Choice, std::size_t N>
Choice parse_word(std::string_view name, std::string_view value,
                  const std::array<std::pair<std::string_view, Choice>, N>& words,
                  std::string_view expected) {
  const std::string text = lower_case(value);
  for (const auto& [word, choice] : words) {
    if (text == word) {
      return choice;
    }
  }
  refuse_value(name, value, expected);
}

/// @param unit one of the value's units, as seconds or milliseconds.
std::chrono::nanoseconds parse_duration(std::string_view name, std::string_view value,
                                        std::chrono::nanoseconds unit, std::string_view unit_name,
                                        double low);
bool parse_flag(std::string_view name, std::string_view value);
LogLevel parse_log_level(std::string_view name, std::string_view value);
TransportChoice parse_transport(std::string_view name, std::string_view value);
NetworkChoice parse_network(std::string_view name, std::string_view value);
/// "20000-20100", "20000", or "0" for any.
std::pair<int, int> parse_ports(std::string_view name, std::string_view value);
DeviceWayChoice parse_device_way(std::string_view name, std::string_view value);
SynchronisationChoice parse_synchronisation(std::string_view name, std::string_view value);
OnFailure parse_on_failure(std::string_view name, std::string_view value);
ShmCopy parse_shm_copy(std::string_view name, std::string_view value);
std::int64_t parse_chunk(std::string_view name, std::string_view value);

}  // namespace bluefog
