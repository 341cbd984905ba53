#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/device/peer_memory.hpp"
#include "bluefog_cpp/dtype.hpp"
#include "bluefog_cpp/weighted_rank.hpp"
#include "ops/window/window_memory.hpp"

namespace bluefog::ops {

/// The record of its part of a new window that a rank sends to all others.
struct WindowRecord {
  Dtype dtype = Dtype::Float32;
  std::int64_t count = 0;
  bool associated_weight = false;
  /// The place of its block in its shared region.
  std::uint64_t place = 0;
  /// The address of its tensor in its memory.
  std::uint64_t address = 0;
  OwnValue own_value = OwnValue::InTensor;
  /// Whether its buffers could lie in memory of its device, as far as the rank knows by itself.
  bool may_share_device = false;
  /// The buffers' block in memory of its device, where they lie there.
  ShownBlock block{};
  std::vector<std::int32_t> sources{};
  std::vector<std::int32_t> destinations{};
  std::string name{};
  /// Why the rank refuses; empty if it does not.
  std::string error{};
  /// Why its buffers cannot lie on its device after all; empty if they can.
  std::string obstacle{};

  [[nodiscard]] std::vector<std::byte> to_blob() const;
  /// @throws TransportError if the blob is no record.
  static WindowRecord from_blob(std::span<const std::byte> blob);
};

/// The ranks of a plan's list, in its order.
[[nodiscard]] std::vector<std::int32_t> ranks_of(const std::vector<WeightedRank>& list);

/// The place of `rank` among `ranks`, or their number.
[[nodiscard]] std::size_t index_of(const std::vector<std::int32_t>& ranks, int rank);

/// Checks that all mean one window, and that plans fit. Every rank comes to the same verdict.
/// @throws PeerFailure where a rank refused, MismatchError.
void check_records(const std::vector<WindowRecord>& records, int own);

}  // namespace bluefog::ops
