#pragma once

#include <string>
#include <string_view>

namespace bluefog {

/// Writes `text` to `path`, whole or not at all, also for a reader that looks meanwhile: by way of
/// `<path>.part`, which then takes its place. A pipe or device is written as it is.
/// @throws InvalidArgument with the path and the reason.
void write_whole_file(const std::string& path, std::string_view text);

/// Whether `write_whole_file` can write to `path` now; leaves nothing behind.
/// @throws InvalidArgument like `write_whole_file`.
void check_writable(const std::string& path);

}  // namespace bluefog
