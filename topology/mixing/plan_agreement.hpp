#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "topology/mixing/step_component.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog {

/// An edge that only one of its two ends knows of.
struct EdgeMismatch {
  enum class Missing { Receive, Send };

  int sender = 0;
  int receiver = 0;
  /// `Receive`: the sender sends, the receiver does not expect it.
  /// `Send`: the receiver expects it, the sender does not send.
  Missing missing = Missing::Receive;

  friend bool operator==(const EdgeMismatch&, const EdgeMismatch&) = default;
};

/// Checks that all ranks' parts of one step fit together: j lists i as a
/// destination exactly where i lists j as a source.
///
/// @param plans `plans[r]` is rank r's part; all ranks, in order.
/// @throws InvalidArgument if a part is wrong by itself, has another size than
///   the number of parts, or stands at another place than its rank.
/// @throws MismatchError naming the first eight edges with only one end.
void check_plans_agree(std::span<const NeighborPlan> plans);

/// Bytes of `edge_bitmaps` for `size` ranks: 2 ⌈size / 8⌉.
[[nodiscard]] std::size_t edge_bitmap_bytes(int size);

/// One rank's neighbours for the cross-rank check: a bit per rank for the
/// destinations (bit r mod 8 of byte r / 8), then as many for the sources.
/// Each of the two parts starts at a byte.
[[nodiscard]] std::vector<std::byte> edge_bitmaps(const NeighborPlan& plan);

/// The same into memory of the caller, without an allocation.
/// @param out exactly `edge_bitmap_bytes(plan.size)` bytes.
/// @throws InvalidArgument if `out` has another size.
void write_edge_bitmaps(const NeighborPlan& plan, std::span<std::byte> out);

/// The neighbours of the rank whose `edge_bitmaps` these are.
[[nodiscard]] StepLinks links_in(std::span<const std::byte> bitmaps);

/// Every edge that only one end knows of, by rising sender, then receiver.
///
/// @param size number of ranks.
/// @param gathered the `edge_bitmaps` of ranks 0 … size − 1, one after the
///   other: what an all-gather returns, hence the same verdict on every rank.
/// @throws InvalidArgument if `gathered` is not size · edge_bitmap_bytes(size)
///   long, or a bitmap names a rank that does not exist.
[[nodiscard]] std::vector<EdgeMismatch> find_edge_mismatches(int size,
                                                             std::span<const std::byte> gathered);

/// Throws where `find_edge_mismatches` finds something. All ranks that check
/// the same bytes throw the same message.
/// @param operation the call that is being checked, for the message.
/// @throws MismatchError naming the first eight edges, sender and receiver.
void check_bitmaps_agree(int size, std::span<const std::byte> gathered, std::string_view operation);

}  // namespace bluefog
