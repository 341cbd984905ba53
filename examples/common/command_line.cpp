#include "examples/common/command_line.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

#include "examples/common/option_words.hpp"

namespace bluefog::examples {

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                      const Context& context) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    const CommandLineEnd end = end_of(app, error);
    if (context.rank() == 0) {
      (end.exit_code == 0 ? std::cout : std::cerr) << end.text << std::flush;
    }
    return end.exit_code;
  }
}

}  // namespace bluefog::examples
