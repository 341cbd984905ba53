#pragma once

#include <cstdint>

namespace bluefog::examples {

/// The most memory that this process has had resident, in bytes (`VmHWM`, which unlike `getrusage`
/// does not count a program that this one replaced); 0 where the system does not say.
[[nodiscard]] std::int64_t peak_resident_bytes();

}  // namespace bluefog::examples
