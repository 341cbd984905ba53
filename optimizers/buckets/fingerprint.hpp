#pragma once

#include <cstddef>
#include <cstdint>

namespace bluefog::optimizers {

/// A number that tells whether bytes have changed: one changed word always changes it, and several
/// that were not chosen for it all but always (about one in 2^64). It holds within a process:
/// processors of unlike instruction sets form unlike numbers.
/// Cost: reads the bytes once, at a cache's or the memory's pace (AES rounds where there are some).
[[nodiscard]] std::uint64_t fingerprint(const void* bytes, std::size_t count) noexcept;

}  // namespace bluefog::optimizers
