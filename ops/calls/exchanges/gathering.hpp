#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/weighted_rank.hpp"
#include "ops/calls/exchanges/plan_exchange.hpp"
#include "ops/calls/validation.hpp"
#include "ops/collectives.hpp"
#include "ops/sums/arithmetic.hpp"

namespace bluefog::ops {

/// The ranks whose inputs a rank gathers, and those that gather its own.
struct GatherPlan {
  /// Ranks heard, rising.
  std::vector<WeightedRank> sources{};
  /// Ranks that hear this one.
  std::vector<WeightedRank> readers{};
  /// Part that is this rank's own input; −1: none. Sources fill the other parts in their order.
  std::int64_t own_part = -1;
  /// The parts one after the other as the result has them; empty: as they are numbered.
  std::vector<std::size_t> order{};
};

/// Gathers the sources' inputs, one after the other, for allgather and neighbour allgather: first
/// every count goes to its readers, then the data.
class Gathering final : public Operation {
 public:
  /// @param checked the plan to compare with the other ranks' first, or null.
  Gathering(const Context& context, OpKind kind, ConstBufferView input, AllocateGathered allocate,
            GatherPlan plan, std::string name, const NeighborPlan* checked = nullptr);

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  bool next(ExchangeSpec& spec) override;
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override;

 private:
  enum class Stage : std::uint8_t { Counts, Data };

  [[nodiscard]] std::size_t part_of_source(std::size_t i) const noexcept;
  [[nodiscard]] int rank_of_part(std::size_t part) const noexcept;
  [[nodiscard]] std::size_t part_at(std::size_t place) const noexcept {
    return plan_.order.empty() ? place : plan_.order[place];
  }
  [[nodiscard]] std::size_t bytes_of(std::int64_t count) const noexcept {
    return static_cast<std::size_t>(count) * size_of(input_.dtype);
  }
  void prepare_output();

  ConstBufferView input_;
  ArithmeticHandle arithmetic_;
  AllocateGathered allocate_;
  GatherPlan plan_;
  int rank_;
  std::string name_;
  Envelope envelope_;
  std::unique_ptr<PlanExchange> check_;
  Stage stage_ = Stage::Counts;
  std::vector<std::int64_t> counts_;
  /// The beginnings of the parts in the output, in bytes; empty until the counts are known.
  std::vector<std::size_t> begins_;
  BufferView output_{};
  Outgoing outgoing_{};
  std::vector<Incoming> incoming_;
};

/// @throws as `check_buffer`, InvalidArgument for no function to allocate with.
void check_gathering(const Context& context, OpKind kind, const ConstBufferView& input,
                     const AllocateGathered& allocate);

}  // namespace bluefog::ops
