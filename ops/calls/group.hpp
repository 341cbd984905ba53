#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog::ops {

/// The ranks of a collective, seen from one of them.
struct Group {
  /// The ranks, rising.
  boost::container::small_vector<int, 1 + kInlineNeighbors> ranks{};
  /// This rank's place among them.
  std::size_t own = 0;
  /// The others, rising, as readers of what this rank sends.
  boost::container::small_vector<WeightedRank, kInlineNeighbors> peers{};

  [[nodiscard]] std::size_t size() const noexcept { return ranks.size(); }
  /// All `peers`, as readers or sources of the same message.
  [[nodiscard]] std::span<const WeightedRank> others() const noexcept {
    return {peers.data(), peers.size()};
  }
  /// Place among `ranks` of `peers[i]`.
  [[nodiscard]] std::size_t place_of_peer(std::size_t i) const noexcept {
    return i < own ? i : i + 1;
  }

  /// @param ranks rising. @param rank one of them, this one.
  static Group of(std::span<const int> ranks, int rank);
  static Group everyone(const Context& context);
  /// The ranks of this rank's machine.
  static Group machine(const Context& context);
};

/// The name under which calls are compared across ranks: the user's, and what else has to be
/// the same everywhere ("root 1").
[[nodiscard]] std::string fingerprint_name(std::string_view name, std::string_view detail);

}  // namespace bluefog::ops
