#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"

namespace bluefog {

/// Reads memory of other ranks of this host, at those ranks' own addresses.
class MemoryReader {
 public:
  /// Collective. Each rank tries to read a word of every rank of `ranks`, its own host's.
  MemoryReader(Bootstrap& bootstrap, const std::vector<int>& ranks, Deadline deadline);

  [[nodiscard]] bool reaches(int rank) const noexcept {
    return can_read_[static_cast<std::size_t>(rank)];
  }

  /// Copies `bytes` bytes at `address` of `rank`. @throws PeerFailure if its process has ended,
  ///   TransportError with the system's reason.
  void read(int rank, std::uintptr_t address, std::byte* to, std::size_t bytes) const;

 private:
  bool is_in_process_;
  std::vector<int> processes_;
  std::vector<bool> can_read_;
};

}  // namespace bluefog
