#pragma once

#include <string_view>

/// Output that a program promises: where it is lost, the program has failed.
namespace bluefog::command_line {

/// Writes `text` to standard output; returns when the system has taken all of it.
/// @throws std::runtime_error with the system's reason: no space left, a closed stream.
void print(std::string_view text);

/// Opens /dev/null as standard output where that is closed, so that no file of the program takes
/// its number. Returns whether it was closed: what is printed then is lost.
[[nodiscard]] bool fill_closed_output();

/// Writes what stdout and std::cout still hold, at the end of a program.
/// @throws std::runtime_error if that fails, or if anything written to them before was lost.
void flush_output();

}  // namespace bluefog::command_line
