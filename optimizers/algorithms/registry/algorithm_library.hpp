#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "optimizers/algorithm_row.hpp"

namespace bluefog::optimizers {

/// Loads a shared object, for good, and calls its `bluefog_register_algorithms`. One that is loaded
/// already is not called again. Any thread.
/// @returns the names that came in by the call, again where it was made before.
/// @throws InvalidArgument naming the file, if it cannot be loaded or has no such function, or if a
///   row of it is refused. Other exceptions of the function are passed on.
std::vector<std::string> load_algorithms(const std::filesystem::path& path);

/// `register_algorithm` of a row that takes the place of the one of its name, as where a cell of a
/// notebook runs again. That one stays for those who have it, and has no name any more. Any thread.
/// @throws InvalidArgument as `register_algorithm`; the former row stays then.
void replace_algorithm(AlgorithmRow row);

}  // namespace bluefog::optimizers
