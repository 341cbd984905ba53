#pragma once

#include <cstddef>

namespace bluefog::testing {

/// Calls of operator new by the calling thread so far. Programs that link bluefog_allocation_count
/// have their operator new replaced by one that counts.
[[nodiscard]] std::size_t allocations_of_this_thread() noexcept;

/// The same of all threads together.
[[nodiscard]] std::size_t allocations_of_all_threads() noexcept;

}  // namespace bluefog::testing
