#pragma once

#include <string>

namespace bluefog {

/// Raises this process's soft limit of descriptors (RLIMIT_NOFILE) to its hard one. Thread-safe;
/// leaves the limit as it is where the system refuses.
void raise_descriptor_limit() noexcept;

/// The text of a system error, and the limit of this process behind it where there is one: that of
/// descriptors for EMFILE, of addresses for ENOMEM.
/// @param error a value of `errno`.
[[nodiscard]] std::string reason_of(int error);

}  // namespace bluefog
