#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "bluefog_cpp/transport/context.hpp"
#include "bluefog_cpp/transport/exchange.hpp"
#include "ops/group.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::ops {

/// The exchange before a checked step: every rank tells all others whom it sends to and whom it
/// hears, so that all come to the same verdict before any data moves.
class PlanExchange {
 public:
  /// @param call what the step calls itself; the plans are compared under its count and name.
  PlanExchange(const Context& context, const NeighborPlan& plan, const Envelope& call);

  /// Describes the exchange on the first call.
  /// @return false on the second one: the plans agree.
  /// @throws MismatchError on the second one, naming the edges that only one end knows of.
  bool describe(ExchangeSpec& spec);

  void receive(std::size_t offset, std::size_t bytes, const Piece& piece);

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
  [[nodiscard]] std::byte* bitmap_of(int rank) noexcept;

  Group group_;
  Envelope call_;
  std::size_t bytes_per_rank_;
  std::vector<std::byte> bitmaps_;
  Outgoing outgoing_{};
  std::vector<Incoming> incoming_;
  bool described_ = false;
};

}  // namespace bluefog::ops
