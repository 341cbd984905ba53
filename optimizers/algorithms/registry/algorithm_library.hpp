#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bluefog::optimizers {

/// Loads a shared object, for good, and calls its `bluefog_register_algorithms`. One that is loaded
/// already is not called again. Any thread.
/// @returns the names that came in by the call, again where it was made before.
/// @throws InvalidArgument naming the file, if it cannot be loaded or has no such function, or if a
///   row of it is refused. Other exceptions of the function are passed on.
std::vector<std::string> load_algorithms(const std::filesystem::path& path);

}  // namespace bluefog::optimizers
