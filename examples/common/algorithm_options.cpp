#include "examples/common/algorithm_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <variant>

#include "bluefog_cpp/base/nearest_name.hpp"
#include "bluefog_cpp/error.hpp"
#include "examples/common/named_algorithm.hpp"
#include "ops/compression.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/options.hpp"

namespace bluefog::examples {
namespace {

using optimizers::AlgorithmOption;

/// The options of all the algorithms, each name once.
std::vector<const AlgorithmOption*> options_listed_by(const std::vector<std::string>& algorithms) {
  std::vector<const AlgorithmOption*> all;
  for (const std::string& algorithm : algorithms) {
    for (const AlgorithmOption& option : row_of(algorithm_of(algorithm)).options) {
      if (std::ranges::find(all, option.name, &AlgorithmOption::name) == all.end()) {
        all.push_back(&option);
      }
    }
  }
  return all;
}

std::string default_of(const AlgorithmOption& option) {
  const std::optional<double> number = option.default_number();
  return number ? fmt::format("{}", *number) : std::get<std::string>(option.default_value);
}

bool is_switch(const AlgorithmOption& option) {
  return std::holds_alternative<bool>(option.default_value);
}

bool is_whole(const AlgorithmOption& option) {
  return std::holds_alternative<std::int64_t>(option.default_value);
}

std::string bounds_of(const AlgorithmOption& option) {
  if (!option.default_number()) {
    return fmt::format("one of {}", fmt::join(ops::compression_names(), ", "));
  }
  if (is_switch(option)) {
    return "0 or 1";
  }
  const char* const kind = is_whole(option) ? "a whole number" : "a number";
  if (std::isfinite(option.least) && std::isfinite(option.below)) {
    return fmt::format("{} from {} to below {}", kind, option.least, option.below);
  }
  if (std::isfinite(option.least)) {
    return fmt::format("{} of at least {}", kind, option.least);
  }
  return std::isfinite(option.below) ? fmt::format("{} below {}", kind, option.below) : kind;
}

std::string describe(const AlgorithmOption& option) {
  return fmt::format("{} ({}, by default {})", option.name, bounds_of(option), default_of(option));
}

/// The answer to a word without an option, or with one that no row lists.
std::string refusal(const std::vector<const AlgorithmOption*>& options,
                    const std::vector<std::string>& algorithms, const std::string& word,
                    std::string_view name) {
  if (options.empty()) {
    return fmt::format("expected no option for {}, found '{}'", fmt::join(algorithms, ", "), word);
  }
  std::vector<std::string> texts;
  std::vector<std::string_view> names;
  for (const AlgorithmOption* option : options) {
    texts.push_back(describe(*option));
    names.emplace_back(option->name);
  }
  const std::string_view nearest = nearest_name(names, name);
  return fmt::format("expected NAME=VALUE with an option of {}: {}; found '{}'{}",
                     fmt::join(algorithms, ", "), fmt::join(texts, ", "), word,
                     nearest.empty() || nearest == name
                         ? std::string()
                         : fmt::format("; did you mean {}?", nearest));
}

std::optional<OptionValues::mapped_type> value_of(const AlgorithmOption& option,
                                                  std::string_view text) {
  if (!option.default_number()) {
    if (text != std::get<std::string>(option.default_value)) {
      (void)ops::compression_named(text);  // the one kind of text that rows have
    }
    return std::string(text);
  }
  // Whole numbers beyond it are not all doubles.
  constexpr double kLargestWhole = 1LL << 53;
  double value = 0.0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool is_one = error == std::errc() && stop == end && std::isfinite(value) &&
                      value >= option.least && value < option.below;
  const bool is_of_kind =
      is_switch(option)
          ? value == 0.0 || value == 1.0
          : !is_whole(option) || (value == std::trunc(value) && std::abs(value) <= kLargestWhole);
  return is_one && is_of_kind ? std::optional<OptionValues::mapped_type>(value) : std::nullopt;
}

void set_field(std::string_view name, const OptionValues::mapped_type& given,
               optimizers::DistributedOptimizerOptions& options) {
  if (name == "compression") {
    const auto& code = std::get<std::string>(given);
    options.compression = code == "none" ? nullptr : ops::compression_named(code);
    return;
  }
  const double value = std::get<double>(given);
  if (name == "momentum") {
    options.momentum = value;
  } else if (name == "global_period_rounds") {
    options.global_period_rounds = static_cast<std::int64_t>(value);
  } else if (name == "step_in_backward") {
    options.step_in_backward = value != 0.0;
  } else {
    throw InvalidArgument(
        fmt::format("expected an option that these programs know how to set, found '{}'", name));
  }
}

}  // namespace

OptionValues option_values(const std::vector<std::string>& words,
                           const std::vector<std::string>& algorithms) {
  const std::vector<const AlgorithmOption*> options = options_listed_by(algorithms);
  OptionValues values;
  for (const std::string& word : words) {
    const std::size_t equals = std::min(word.find('='), word.size());
    std::string name = word.substr(0, equals);
    std::ranges::replace(name, '-', '_');
    const auto found = std::ranges::find(options, name, &AlgorithmOption::name);
    if (found == options.end() || equals == word.size()) {
      throw InvalidArgument(refusal(options, algorithms, word, name));
    }
    const auto value = value_of(**found, word.substr(equals + 1));
    if (!value) {
      throw InvalidArgument(fmt::format("{}: expected {} (by default {}), found '{}'", name,
                                        bounds_of(**found), default_of(**found),
                                        word.substr(equals + 1)));
    }
    if (!values.emplace(name, *value).second) {
      throw InvalidArgument(fmt::format("{}: expected it once, found it twice", name));
    }
  }
  return values;
}

std::string why_no_options(const std::vector<std::string>& words,
                           const std::vector<std::string>& algorithms) {
  try {
    (void)option_values(words, algorithms);
    return {};
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

void set_values(const OptionValues& values, optimizers::DistributedOptimizerOptions& options) {
  for (const AlgorithmOption& option : row_of(options.algorithm).options) {
    const auto given = values.find(option.name);
    if (given == values.end()) {
      continue;
    }
    if (option.is_field) {
      set_field(option.name, given->second, options);
    } else {
      options.numbers[option.name] = std::get<double>(given->second);
    }
  }
}

}  // namespace bluefog::examples
