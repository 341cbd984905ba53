#pragma once

#include <CLI/App.hpp>
#include <optional>

#include "bluefog_cpp/context.hpp"

namespace bluefog::examples {

/// Reads the command line into what `app` is bound to. Rank 0 alone prints help and errors.
/// @return the exit code with which every rank should leave, or nothing if the program may go on.
[[nodiscard]] std::optional<int> parse_command_line(CLI::App& app, int argc,
                                                    const char* const* argv,
                                                    const Context& context);

}  // namespace bluefog::examples
