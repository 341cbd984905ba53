#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bluefog::examples {

/// Debian's base-files has these texts on every machine.
inline constexpr const char* kLicences = "/usr/share/common-licenses";

/// All bytes of the files, and of those in the folders by rising name, one file after the other;
/// links in folders are files that are there by another name.
/// @throws InvalidArgument with the path for one that cannot be read.
[[nodiscard]] std::string read_texts(const std::vector<std::filesystem::path>& paths);

}  // namespace bluefog::examples
