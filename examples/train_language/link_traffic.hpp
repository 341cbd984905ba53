#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

namespace bluefog::examples {

/// The bytes that have left this host, as the kernel counts them for its interfaces but the
/// loopback one, whoever sent them: ranks of one host meet in its memory and send none. Nothing
/// where the kernel has no counters.
[[nodiscard]] std::optional<std::int64_t> bytes_sent_by_host();

/// The same of the lines of /proc/net/dev.
[[nodiscard]] std::int64_t bytes_sent_in(std::istream& counters);

}  // namespace bluefog::examples
