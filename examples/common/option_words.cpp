#include "examples/common/option_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/nearest_name.hpp"

namespace bluefog::examples {
namespace {

std::string hint(const std::vector<std::string>& names, std::string_view word) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view name = nearest_name(known, word);
  return name.empty() ? std::string() : fmt::format("; did you mean {}?", name);
}

bool is_same_name(std::string_view one, std::string_view other) {
  const auto spelled = [](char letter) { return letter == '_' ? '-' : letter; };
  return std::ranges::equal(one, other, {}, spelled, spelled);
}

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
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

bool is_one_of(const std::vector<std::string>& names, std::string_view word) {
  return std::ranges::any_of(names,
                             [&](const std::string& name) { return is_same_name(name, word); });
}

CLI::Validator one_of(std::vector<std::string> names) {
  const std::string all = fmt::format("{}", fmt::join(names, ","));
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        return is_one_of(names, text)
                   ? std::string()
                   : fmt::format("expected one of {}; found {}{}", fmt::join(names, ", "), text,
                                 hint(names, text));
      },
      "{" + all + "}");
}

CLI::Validator one_of_or_edge_file(std::vector<std::string> names) {
  const std::string all = fmt::format("{}", fmt::join(names, ","));
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        std::error_code none;  // what cannot be looked up is no file either
        return is_one_of(names, text) || std::filesystem::exists(text, none)
                   ? std::string()
                   : fmt::format(
                         "expected one of {}, or a file of lines 'i j [weight]'; found {}{}",
                         fmt::join(names, ", "), text, hint(names, text));
      },
      "{" + all + ",FILE}");
}

void add_algorithm_option(CLI::App& app, std::vector<std::string>& words,
                          std::function<std::string()> why_refused) {
  app.add_option("--option", words,
                 "Option of the algorithm's own, as momentum=0.8; may be given several times")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false)
      ->default_str("");
  app.callback([why_refused = std::move(why_refused)] {
    const std::string problem = why_refused();
    if (!problem.empty()) {
      throw CLI::ValidationError("--option", problem);
    }
  });
}

CommandLineEnd end_of(const CLI::App& app, const CLI::ParseError& error) {
  constexpr int kWrongCommandLine = 2;
  std::ostringstream text;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return {kWrongCommandLine, words_for_extras(app) + "\nRun with --help for more information.\n"};
  }
  const bool is_help = app.exit(error, text, text) == 0;
  return {is_help ? 0 : kWrongCommandLine, text.str()};
}

}  // namespace bluefog::examples
