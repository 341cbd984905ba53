#pragma once

#include <exception>

namespace bluefog {

/// Runs `task`, or as much of it as there is memory for. For what may be left out: records and
/// reports of something that ends all the same.
template <typename Task>
void where_memory_allows(const Task& task) noexcept {
  try {
    task();
  } catch (const std::exception&) {
  }
}

/// The error that `make` returns or, out of memory, throws.
template <typename Make>
[[nodiscard]] std::exception_ptr error_from(const Make& make) noexcept {
  try {
    return make();
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace bluefog
