#pragma once

#include <cstdint>

namespace bluefog::examples {

/// The most memory that this process has had resident, in bytes (`VmHWM`, which unlike `getrusage`
/// does not count a program that this one replaced); 0 where the system does not say.
[[nodiscard]] std::int64_t peak_resident_bytes();

/// The memory that this process has resident, in bytes; 0 where the system does not say.
[[nodiscard]] std::int64_t resident_bytes();

/// The peak begins anew with what is resident, after freed memory has gone back to the system; it
/// stays what it is where the system refuses.
void restart_peak();

}  // namespace bluefog::examples
