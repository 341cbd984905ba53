#include "examples/common/option_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

namespace bluefog::examples {
namespace {

/// Letters to change, add or leave out on the way from `from` to `to` (Levenshtein).
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string hint(const std::vector<std::string>& names, std::string_view word) {
  const std::string name = nearest(names, word);
  return name.empty() ? std::string() : fmt::format("; did you mean {}?", name);
}

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string words_for_extras(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining();
  const auto option = std::ranges::find_if(
      left, [](const std::string& word) { return word.size() > 1 && word.front() == '-'; });
  if (option == left.end()) {
    return fmt::format("expected options alone, found '{}'", left.empty() ? "" : left.back());
  }
  const std::string name = option->substr(0, option->find('='));
  return fmt::format("there is no option {}{}", name, hint(long_options(app), name));
}

}  // namespace

CLI::Validator one_of(std::vector<std::string> names) {
  const std::string all = fmt::format("{}", fmt::join(names, ","));
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        const bool is_known = std::ranges::find(names, text) != names.end();
        return is_known ? std::string()
                        : fmt::format("expected one of {}; found {}{}", fmt::join(names, ", "),
                                      text, hint(names, text));
      },
      "{" + all + "}");
}

std::string nearest(const std::vector<std::string>& names, std::string_view word) {
  const auto best = std::ranges::min_element(
      names, {}, [&](const std::string& name) { return distance(word, name); });
  const bool is_near = best != names.end() && 3 * distance(word, *best) <= word.size();
  return is_near ? *best : std::string();
}

CommandLineEnd end_of(const CLI::App& app, const CLI::ParseError& error) {
  constexpr int kWrongCommandLine = 2;
  std::ostringstream text;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return {kWrongCommandLine,
            words_for_extras(app) + "\nRun with --help for more information.\n"};
  }
  const bool is_help = app.exit(error, text, text) == 0;
  return {is_help ? 0 : kWrongCommandLine, text.str()};
}

}  // namespace bluefog::examples
