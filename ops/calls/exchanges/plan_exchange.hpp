#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "ops/calls/group.hpp"
#include "topology/mixing/step_component.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::ops {

/// The exchange before a checked step, by which all ranks come to the same verdict before any data
/// moves: every rank tells all others whom it sends to and whom it hears, and the digest of its
/// plan's graph (`NeighborPlan::graph`). In a step between machines it also tells the digest of its
/// weights, which have to be those of all ranks of its machine.
class PlanExchange {
 public:
  /// @param call the step's envelope; the plans are compared under its count and name.
  PlanExchange(const Context& context, const NeighborPlan& plan, const Envelope& call);

  /// @param twins the edges between ranks. @param machine_plan the plan that they come from.
  PlanExchange(const Context& context, const NeighborPlan& twins, const NeighborPlan& machine_plan,
               const Envelope& call);

  /// Describes the exchange on the first call.
  /// @return false on the second one: the plans agree.
  /// @throws MismatchError on the second one, naming the edges that only one end knows of, two
  /// ranks whose graphs differ, or two ranks of a machine whose weights differ.
  bool describe(ExchangeSpec& spec);

  void receive(std::size_t offset, std::size_t bytes, const Piece& piece);

  /// The neighbours of a rank, after the exchange.
  [[nodiscard]] StepLinks links_of(int rank) const;

  /// Describes the comparison as an operation's next exchange, while there is one; ends it when the
  /// plans agree. @return whether `spec` was filled.
  /// @throws MismatchError as `describe`.
  static bool comes_next(std::unique_ptr<PlanExchange>& check, ExchangeSpec& spec) {
    if (check != nullptr && !check->describe(spec)) {
      check.reset();
    }
    return check != nullptr;
  }

 private:
  struct Digests {
    /// The digest of the graph.
    std::uint64_t graph = 0;
    /// The digest of the weights of the rank's machine.
    std::uint64_t weights = 0;
  };

  PlanExchange(const Context& context, const NeighborPlan& plan, const Envelope& call,
               const MachineLayout* machines, const Digests& digests);

  void check_edges() const;
  void check_graphs() const;
  void check_weights() const;
  [[nodiscard]] std::string call_text() const;
  [[nodiscard]] std::byte* words_of(int rank) noexcept;
  [[nodiscard]] Digests digests_of(int rank) const noexcept;

  Group group_;
  Envelope call_;
  /// Null where ranks have plans of their own.
  const MachineLayout* machines_;
  std::size_t bitmap_bytes_;
  std::size_t bytes_per_rank_;
  /// The words of the ranks, by rank: the bitmaps, and behind them the digests.
  std::vector<std::byte> words_;
  Outgoing outgoing_{};
  std::vector<Incoming> incoming_;
  bool described_ = false;
};

}  // namespace bluefog::ops
