#pragma once

#include <cstdint>

namespace bluefog {

/// The collectives of a bootstrap, as ranks tell each other which one they make.
enum class BootstrapCall : std::uint64_t { Start, Allgather, Barrier, Duplicate };

[[nodiscard]] constexpr const char* to_string(BootstrapCall call) noexcept {
  switch (call) {
    case BootstrapCall::Start:
      return "start";
    case BootstrapCall::Allgather:
      return "allgather";
    case BootstrapCall::Barrier:
      return "barrier";
    case BootstrapCall::Duplicate:
      return "duplicate";
  }
  return "unknown";
}

}  // namespace bluefog
