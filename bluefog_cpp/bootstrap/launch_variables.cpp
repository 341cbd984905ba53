#include "bluefog_cpp/bootstrap/launch_variables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/quoted.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

// What is expected of the variables and not so; empty: nothing.
std::string missed_by(const LaunchNaming& naming, const LaunchVariables& variables,
                      LaunchNeeds needs) {
  const bool has_rank = variables.contains(naming.rank);
  const bool has_size = variables.contains(naming.size);
  const int rank = number_in(variables, naming.rank);
  const int size = number_in(variables, naming.size);
  if (has_rank && rank < 0) {
    return fmt::format("a rank, from 0 on, in {}", naming.rank);
  }
  if (has_size && size < 1) {
    return fmt::format("a number of ranks, from 1 on, in {}", naming.size);
  }
  if (has_rank && has_size) {
    return rank < size ? "" : fmt::format("a rank below the number of ranks in {}", naming.rank);
  }
  const bool needs_both = needs == LaunchNeeds::Both;
  if (has_rank && (rank > 0 || needs_both)) {
    return fmt::format("{} beside it", naming.size);
  }
  return size > 1 && needs_both ? fmt::format("{} beside it", naming.rank) : "";
}

// A number or a name as it is; what a terminal might obey, or could not show, in quotes.
std::string as_shown(const std::string& value) {
  constexpr std::size_t kMostShown = 60;
  const bool is_plain = value.size() <= kMostShown &&
                        std::ranges::all_of(value, [](char c) { return c > ' ' && c <= '~'; });
  return is_plain ? value : quoted(value, kMostShown);
}

}  // namespace

std::string value_of(const LaunchVariables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second;
}

int number_in(const LaunchVariables& variables, const std::string& name) {
  const std::string text = value_of(variables, name);
  int number = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc{} && end == text.data() + text.size() ? std::max(number, -1) : -1;
}

std::string quote(const LaunchVariables& variables, std::initializer_list<const char*> names) {
  std::vector<std::string> words;
  for (const char* const name : names) {
    if (const auto found = variables.find(name); found != variables.end()) {
      words.push_back(fmt::format("{}={}", name, as_shown(found->second)));
    }
  }
  if (words.empty()) {
    return {};
  }
  const std::string last = std::move(words.back());
  words.pop_back();
  return words.empty() ? last : fmt::format("{} and {}", fmt::join(words, ", "), last);
}

void check_place(const LaunchNaming& naming, const LaunchVariables& variables, LaunchNeeds needs) {
  const std::string missed = missed_by(naming, variables, needs);
  if (missed.empty()) {
    return;
  }
  const bool is_one = variables.contains(naming.rank) != variables.contains(naming.size);
  throw InvalidArgument(fmt::format(
      "{}: expected {}, found none; start several ranks with {}, or unset {} to run as a single "
      "process",
      quote(variables, {naming.rank, naming.size}), missed, kWaysToStart, is_one ? "it" : "them"));
}

}  // namespace bluefog
