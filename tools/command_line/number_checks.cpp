#include "tools/command_line/number_checks.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace bluefog::command_line {
namespace {

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

std::string refusal(const std::string& expected, const std::string& found) {
  return fmt::format("expected {}, found {}", expected, found.empty() ? "nothing" : found);
}

std::string words_for(const NumberRange& range) {
  std::string words = fmt::format(
      "a number of {} {}", range.at_low == Bound::Included ? "at least" : "more than", range.low);
  if (std::isfinite(range.high)) {
    words += fmt::format(" and {} {}", range.at_high == Bound::Included ? "at most" : "less than",
                         range.high);
  }
  return words;
}

}  // namespace

CLI::Validator whole_number(std::uint64_t low, std::uint64_t high) {
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = parse<std::uint64_t>(text);
        // CLI11 reads 010 as octal.
        const bool is_decimal = text.size() < 2 || text.front() != '0';
        return value && is_decimal && *value >= low && *value <= high
                   ? std::string()
                   : refusal(fmt::format("a whole number from {} to {}", low, high), text);
      },
      "");
}

CLI::Validator number(const NumberRange& range) {
  return CLI::Validator(
      [range](std::string& text) {
        const double value = parse<double>(text).value_or(std::nan(""));
        const bool is_above =
            range.at_low == Bound::Included ? value >= range.low : value > range.low;
        const bool is_below =
            range.at_high == Bound::Included ? value <= range.high : value < range.high;
        return std::isfinite(value) && is_above && is_below ? std::string()
                                                            : refusal(words_for(range), text);
      },
      "");
}

}  // namespace bluefog::command_line
