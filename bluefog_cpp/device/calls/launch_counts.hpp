#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bluefog {

/// How many exchanges of device memory a rank has launched with each other rank.
class LaunchCounts {
 public:
  explicit LaunchCounts(int size) : counts_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] std::uint64_t with(int rank) const {
    return counts_[static_cast<std::size_t>(rank)];
  }
  void note(int rank) { ++counts_[static_cast<std::size_t>(rank)]; }

 private:
  /// One per rank, in their order.
  std::vector<std::uint64_t> counts_;
};

}  // namespace bluefog
