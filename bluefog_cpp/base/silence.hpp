#pragma once

#include <string_view>

namespace bluefog {

/// The beginning of the cause of death of a process that may still be there, but stopped.
inline constexpr std::string_view kSilence = "that rank's process has shown no sign of life";

}  // namespace bluefog
