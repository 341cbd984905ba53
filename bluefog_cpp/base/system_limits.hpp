#pragma once

#include <cstdint>
#include <string>

namespace bluefog {

/// Raises this process's soft limit of descriptors (RLIMIT_NOFILE) to its hard one. Thread-safe;
/// leaves the limit as it is where the system refuses.
void raise_descriptor_limit() noexcept;

/// The number of descriptors that this process may have; 0 where the system does not tell, or sets
/// no limit that counts.
[[nodiscard]] std::uint32_t descriptor_limit() noexcept;

/// Whether a system error says that no descriptor is left: for this process, or on this machine.
[[nodiscard]] bool is_out_of_descriptors(int error) noexcept;

/// Memory of this machine that is free or can be made so, in bytes; the largest number where the
/// system does not tell.
[[nodiscard]] std::uint64_t available_memory();

/// The text of a system error, and the limit of this process behind it where there is one: that of
/// descriptors for EMFILE, of addresses for ENOMEM.
/// @param error a value of `errno`.
/// @param process this process in words, for a reader in another one.
[[nodiscard]] std::string reason_of(int error, const std::string& process = "this process");

}  // namespace bluefog
