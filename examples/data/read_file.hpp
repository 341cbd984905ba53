#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace bluefog::examples {

/// Upper bound on the unpacked size of a data file, so that a damaged or hostile archive cannot
/// take all memory: 4 GiB.
inline constexpr std::size_t kMaxFileBytes = std::size_t{4} << 30;

/// The bytes of `path`, unpacked if it is a gzip file (told by its content, not its name).
///
/// @throws InvalidArgument if the file is missing (says how to get the data), cannot be read, is a
///   damaged or truncated gzip file, or holds more than `max_bytes` bytes.
[[nodiscard]] std::vector<std::uint8_t> read_file(const std::filesystem::path& path,
                                                  std::size_t max_bytes = kMaxFileBytes);

}  // namespace bluefog::examples
