#pragma once

#include <exception>

namespace bluefog {

/// Has this thread throw once. The C++ runtime takes a thread's memory for exceptions with its first
/// one, and ends the process where there is none: the first must not be that memory is short.
inline void prepare_to_throw() noexcept {
  try {
    throw std::exception();
  } catch (const std::exception&) {
  }
}

}  // namespace bluefog
