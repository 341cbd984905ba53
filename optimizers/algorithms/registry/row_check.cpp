#include "optimizers/algorithms/registry/row_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <variant>

namespace bluefog::optimizers {
namespace {

/// Fields of `DistributedOptimizerOptions` that only some algorithms read, and their rows list.
constexpr std::array<std::string_view, 4> kListedFields{"compression", "global_period_rounds",
                                                        "momentum", "step_in_backward"};
/// Fields that hold for every algorithm.
constexpr std::array<std::string_view, 19> kCommonFields{"algorithm",
                                                         "schedule",
                                                         "make_schedule",
                                                         "plans",
                                                         "plan_check",
                                                         "row_sums",
                                                         "num_steps_per_communication",
                                                         "numbers",
                                                         "bucket_bytes",
                                                         "stepping",
                                                         "reevaluates",
                                                         "buffers",
                                                         "learning_rate",
                                                         "moments",
                                                         "rethrow_in_backward",
                                                         "call_name",
                                                         "on_failure",
                                                         "when_shrunk",
                                                         "share_state"};

bool is_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '_';
  });
}

std::string why_no_name(std::string_view kind, std::string_view name) {
  return is_name(name)
             ? std::string()
             : fmt::format("{}: expected lower-case letters, digits and underscores, found '{}'",
                           kind, name);
}

std::string why_invalid_aliases(const AlgorithmRow& row) {
  for (std::size_t i = 0; i < row.aliases.size(); ++i) {
    const std::string& alias = row.aliases[i];
    if (std::string problem = why_no_name("alias", alias); !problem.empty()) {
      return problem;
    }
    if (alias == row.name) {
      return fmt::format("alias: expected other names than the row's own, found '{}'", alias);
    }
    const auto end = row.aliases.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(row.aliases.begin(), end, alias) != end) {
      return fmt::format("alias: expected each once, found '{}' twice", alias);
    }
  }
  return {};
}

std::string why_invalid_field(const AlgorithmOption& option) {
  const bool is_listed = std::ranges::find(kListedFields, option.name) != kListedFields.end();
  const bool is_common = std::ranges::find(kCommonFields, option.name) != kCommonFields.end();
  if (option.is_field && !is_listed) {
    return fmt::format("option '{}': expected one of {} for a field (`is_field`), found '{}'",
                       option.name, fmt::join(kListedFields, ", "), option.name);
  }
  if (!option.is_field && (is_listed || is_common)) {
    return fmt::format(
        "option '{}': expected a name that no field of DistributedOptimizerOptions has{}, found "
        "'{}'",
        option.name, is_listed ? ", or `is_field`" : "", option.name);
  }
  return {};
}

std::string why_invalid_limits(const AlgorithmOption& option) {
  if (option.is_field) {
    return {};
  }
  if (!(option.least < option.below)) {
    return fmt::format("option '{}': expected `least` below `below`, found {} and {}", option.name,
                       option.least, option.below);
  }
  const std::optional<double> number = option.default_number();
  if (!number) {
    return fmt::format("option '{}': expected a number for a default, or `is_field`, found '{}'",
                       option.name, std::get<std::string>(option.default_value));
  }
  const double value = *number;
  if (!(value >= option.least && value < option.below)) {
    return fmt::format("option '{}': expected a default from {} to below {}, found {}", option.name,
                       option.least, option.below, value);
  }
  return {};
}

std::string why_invalid_option(const AlgorithmRow& row, const AlgorithmOption& option) {
  if (std::string problem = why_no_name("option", option.name); !problem.empty()) {
    return problem;
  }
  if (std::ranges::count(row.options, option.name, &AlgorithmOption::name) > 1) {
    return fmt::format("option '{}': expected each option once, found it twice", option.name);
  }
  if (option.meaning.empty()) {
    return fmt::format("option '{}': expected a text for tables (`meaning`), found none",
                       option.name);
  }
  const std::string problem = why_invalid_field(option);
  return problem.empty() ? why_invalid_limits(option) : problem;
}

std::string why_invalid_own_schedules(const AlgorithmRow& row) {
  for (const OwnSchedule& own : row.own_schedules) {
    std::string spelled = own.name;
    std::ranges::replace(spelled, '-', '_');
    if (!is_name(spelled)) {
      return fmt::format(
          "schedule: expected lower-case letters, digits, hyphens and underscores, found '{}'",
          own.name);
    }
    if (std::ranges::count(row.own_schedules, own.name, &OwnSchedule::name) > 1) {
      return fmt::format("schedule '{}': expected each schedule once, found it twice", own.name);
    }
    if (!own.make) {
      return fmt::format("schedule '{}': expected a function that makes it (`make`), found none",
                         own.name);
    }
  }
  return {};
}

}  // namespace

std::string why_invalid(const AlgorithmRow& row) {
  std::string problem = why_no_name("name", row.name);
  if (problem.empty() && !row.make) {
    problem = "expected a function that makes the algorithm (`make`), found none";
  }
  if (problem.empty()) {
    problem = why_invalid_aliases(row);
  }
  for (std::size_t i = 0; problem.empty() && i < row.options.size(); ++i) {
    problem = why_invalid_option(row, row.options[i]);
  }
  return problem.empty() ? why_invalid_own_schedules(row) : problem;
}

}  // namespace bluefog::optimizers
