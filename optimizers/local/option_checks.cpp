#include "optimizers/local/option_checks.hpp"

#include <fmt/format.h>

#include <cmath>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {

void check_not_negative(std::string_view optimizer, std::string_view option, double value) {
  if (!std::isfinite(value) || value < 0.0) {
    throw InvalidArgument(fmt::format("{}: {}: expected a finite number of at least 0, found {}",
                                      optimizer, option, value));
  }
}

void check_share(std::string_view optimizer, std::string_view option, double value) {
  if (!(value >= 0.0 && value < 1.0)) {
    throw InvalidArgument(fmt::format("{}: {}: expected a number from 0 to below 1, found {}",
                                      optimizer, option, value));
  }
}

}  // namespace bluefog::optimizers
