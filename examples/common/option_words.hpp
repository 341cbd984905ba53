#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// The words that the command lines of the examples accept, and the answers to other words.
namespace bluefog::examples {

/// One of `names`, in which hyphens and underscores mean the same; to another it lists them and
/// says which of them is nearest.
[[nodiscard]] CLI::Validator one_of(std::vector<std::string> names);

/// The same where a file of a graph's edges will do too; a name goes before a file of that name.
[[nodiscard]] CLI::Validator one_of_or_edge_file(std::vector<std::string> names);

/// Whether `word` is one of `names`, as `one_of` sees it.
[[nodiscard]] bool is_one_of(const std::vector<std::string>& names, std::string_view word);

/// The same for names that stand for values: puts the value in place of the name, for
/// `CLI::Option::transform`.
template <typename Kind>
[[nodiscard]] CLI::Validator one_of(const std::map<std::string, Kind>& kinds) {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds) {
    names.push_back(name);
  }
  return CLI::Validator(
      [kinds, check = one_of(std::move(names))](std::string& text) {
        std::string problem = check(text);
        if (problem.empty()) {
          text = std::to_string(static_cast<int>(kinds.at(text)));
        }
        return problem;
      },
      "");
}

/// Adds `--option NAME=VALUE`, an option of the algorithm's own, which may be given several times.
/// @param why_refused asked when all options are read: why the words cannot be used, or nothing.
void add_algorithm_option(CLI::App& app, std::vector<std::string>& words,
                          std::function<std::string()> why_refused);

/// The text to print and the code to exit with.
struct CommandLineEnd {
  int exit_code = 0;
  std::string text;
};

/// The answer to a command line that `app` refused with `error` (exit code 2), or to a wish for
/// help (0).
[[nodiscard]] CommandLineEnd end_of(const CLI::App& app, const CLI::ParseError& error);

}  // namespace bluefog::examples
