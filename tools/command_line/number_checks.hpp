#pragma once

#include <CLI/App.hpp>  // without which Validators.hpp does not compile
#include <CLI/Validators.hpp>
#include <cstdint>
#include <limits>

/// Checks of options whose errors name the expected and found value; CLI11 puts the option before.
namespace bluefog::command_line {

/// Whole numbers from `low` to `high`, written in decimal digits.
[[nodiscard]] CLI::Validator whole_number(std::uint64_t low, std::uint64_t high);

enum class Bound { Included, Excluded };

/// Finite numbers between two bounds.
struct NumberRange {
  double low = 0.0;
  Bound at_low = Bound::Included;
  double high = std::numeric_limits<double>::infinity();
  Bound at_high = Bound::Included;
};
[[nodiscard]] CLI::Validator number(const NumberRange& range);

}  // namespace bluefog::command_line
