#pragma once

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "ops/calls/exchanges/component_rows.hpp"
#include "ops/calls/exchanges/in_place.hpp"
#include "ops/calls/group.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/sums/arithmetic.hpp"
#include "ops/sums/average.hpp"
#include "ops/sums/result_log.hpp"
#include "topology/mixing/step_component.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::shm {
class HostMemory;
}

namespace bluefog {
class StepGraph;
}

namespace bluefog::ops {

/// A neighbour all-reduce in place of buffers in memory that the ranks of a host share: the ranks
/// that the step ties together each form a share of the index range of all their results, in the
/// buffers. No payload is copied on its way, and no buffer is read or written twice.
///
/// Three steps. Each rank offers its buffer to the others, with its weights. If all can, each forms
/// its share, block by block: first all results of a block, in its `ResultLog`, then into the
/// buffers. Then each hears that all have. A rank whose buffer does not serve says so in its offer
/// and goes on by messages at once; the others do when they hear it.
/// Cost per rank, m ranks and N bytes: reads N, writes N, and 2 (m − 1) short messages each way.
class ComponentSum {
 public:
  /// The component in which such a call may be made: the same on all of its ranks, on which the plans
  /// say who hears whom in the same words. Null where messages do it.
  /// @param graph what is known of the step's graph; null: nothing but the plan.
  /// @param bytes of the call.
  [[nodiscard]] static std::shared_ptr<const StepComponent> component_of(const Context& context,
                                                                         const NeighborPlan& plan,
                                                                         const StepGraph* graph,
                                                                         std::size_t bytes);
  /// The least bytes for which the ranks of a component offer: what an offer to each of them costs
  /// beside messages to neighbours grows with their number.
  [[nodiscard]] static constexpr std::size_t least_bytes(std::size_t ranks) noexcept {
    constexpr std::size_t kFew = 4;
    return kLeastInPlace / kFew * std::max(ranks, kFew);
  }

  /// @param plan is read now alone.
  ComponentSum(const Context& context, std::shared_ptr<const StepComponent> component,
               const NeighborPlan& plan, const ConstBufferView& input, const BufferView& output,
               SynchronisationChoice synchronisation);
  ComponentSum(const ComponentSum&) = delete;
  ComponentSum& operator=(const ComponentSum&) = delete;
  ~ComponentSum();

  /// @param spec has the call's envelope. @param call its number.
  [[nodiscard]] InPlaceStep next(ExchangeSpec& spec, std::uint64_t call);
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces);

  /// After `Declined`: the ranks whose offers the call's messages are not held up by.
  [[nodiscard]] std::span<const WeightedRank> unneeded_offers() const noexcept {
    return takes_part_ ? std::span<const WeightedRank>() : group_.others();
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// The beginning of the message by which a rank offers its buffer; its weights follow.
  struct Offer {
    /// The place of its buffer, or `kNowhere`.
    std::uint64_t place = kNowhere;
    /// The component as it knows it.
    std::uint32_t graph = 0;
    /// Calls to come in which it does not take part.
    std::uint32_t resting = 0;
    double self_weight = 1.0;
  };

  [[nodiscard]] std::size_t offer_bytes(std::size_t place) const;
  [[nodiscard]] Offer offer_of(std::size_t place) const;
  [[nodiscard]] RankStepWeights weights_of(std::size_t place) const;
  /// Writes this rank's weights beside its offer, if its plan is one of the component.
  void write_weights(const NeighborPlan& plan);
  /// Whether the readers are those of the component, as many as they are.
  [[nodiscard]] bool sends_to_its_readers(const NeighborPlan& plan) const;
  /// @throws MismatchError if the rank at `place` offers by another graph.
  void check_graph(std::size_t place) const;
  void make_offer();
  /// The bytes of this rank's `ResultLog`.
  [[nodiscard]] std::size_t log_bytes() const;
  /// Whether this rank has memory for it, which it takes.
  [[nodiscard]] bool has_log() const;
  void describe_offers(ExchangeSpec& spec);
  void describe_receipts(ExchangeSpec& spec);
  [[nodiscard]] bool all_take_part() const;
  using AverageRows = boost::container::small_vector<AverageRow, kInlineNeighbors>;

  void form_share(std::uint64_t call);
  /// The rows as averages of what lies from `offset` on; none where one of them is no average.
  [[nodiscard]] AverageRows averages_of(const ResultRows& rows, std::size_t offset) const;
  /// Forms a share of rows of any weights, all results of some KiB at once.
  void form_blocks(const ResultRows& rows, std::size_t begin, std::size_t bytes, ResultLog& log);
  void form(const ResultRows& rows, std::byte* results, std::size_t offset, std::size_t bytes);
  void write(const ResultRows& rows, const std::byte* results, std::size_t offset,
             std::size_t bytes) const;

  ContextCore& core_;
  std::shared_ptr<shm::HostMemory> memory_;
  std::shared_ptr<const StepComponent> component_;
  Group group_;
  BufferView output_;
  /// `kNowhere` where the buffer is not in shared memory, or the call not in place.
  std::uint64_t place_ = kNowhere;
  double self_weight_ = 1.0;
  SynchronisationChoice synchronisation_;
  ArithmeticHandle sums_;
  InPlaceStage stage_ = InPlaceStage::Begin;
  std::uint64_t call_ = 0;
  bool takes_part_ = false;
  Outgoing outgoing_{};
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
  /// The offers by place in the group, one after the other from `begins_` on.
  boost::container::small_vector<double, 160> words_;
  boost::container::small_vector<std::size_t, 2 + kInlineNeighbors> begins_;
  boost::container::small_vector<std::byte*, 1 + kInlineNeighbors> buffers_;
  boost::container::small_vector<Operand, 1 + kInlineNeighbors> operands_;
  /// When the offers of all that this rank hears had come, and its own was made.
  Clock::time_point heard_{};
  /// When all offers had.
  Clock::time_point begun_{};
};

}  // namespace bluefog::ops
