#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tools/bftopo/options.hpp"
#include "tools/bftopo/subject.hpp"

/// The text of each command, as it goes to standard output.
namespace bluefog::bftopo {

/// A text, and the exit code that goes with it.
struct Answer {
  std::string text;
  int exit_code = 0;
};

[[nodiscard]] std::string show_text(const Options& options, const Subject& subject);
/// The report, with all that is broken in the graph; exit code 1 where something is.
[[nodiscard]] Answer check_answer(const Options& options, const Subject& subject);
[[nodiscard]] std::string gap_text(const Options& options, const Subject& subject);
/// @param terminal where a progress bar goes if it is a terminal; may be null.
[[nodiscard]] std::string simulate_text(const Options& options, const Subject& subject,
                                        std::FILE* terminal);
/// The picture. @throws UsageError if there are too many ranks to draw.
[[nodiscard]] std::string draw_text(const Options& options, const Subject& subject);
[[nodiscard]] std::string list_text(const Options& options);

/// Reads the arguments, runs the command and prints.
/// @return the exit code: 0; 1 where `check` has found something broken.
/// @throws UsageError, InvalidArgument and Error as the parts do.
int run(const std::vector<std::string>& arguments);

}  // namespace bluefog::bftopo
