#include "examples/common/command_line.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>

namespace bluefog::examples {

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                      const Context& context) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    const int code = app.exit(error, out, err);
    if (context.rank() == 0) {
      std::cout << out.str() << std::flush;
      std::cerr << err.str() << std::flush;
    }
    return code;
  }
}

}  // namespace bluefog::examples
