#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "ops/calls/exchanges/component_sum.hpp"
#include "ops/calls/exchanges/in_place.hpp"
#include "ops/calls/exchanges/plan_exchange.hpp"
#include "ops/calls/row_operands.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/sums/arithmetic.hpp"
#include "topology/mixing/step_graph.hpp"

namespace bluefog::ops {

/// The exchanges of one weighted average with neighbours: the comparison of plans where it is asked
/// for, then a sum in shared memory where all ranks of the component take part, else messages, which
/// are combined piece by piece as they arrive.
class NeighborAverage {
 public:
  /// @param plan, envelope stay where they are until the last exchange is over; the envelope is the
  /// call's, of as many elements as the buffers. @param compared the step's graph, where the plans
  /// have been compared already; null: `options` says whether they are to be.
  NeighborAverage(const Context& context, ConstBufferView input, BufferView output,
                  const NeighborPlan& plan, const NeighborAllreduceOptions& options,
                  const Envelope& envelope, const StepGraph* compared = nullptr)
      : input_(std::move(input)),
        output_(std::move(output)),
        plan_(plan),
        own_place_(place_among(plan_.sources, plan_.rank)),
        sums_(arithmetic_on(context, output_.device)),
        consumption_(consumption_of(options)),
        envelope_(envelope) {
    if (options.check == PlanCheck::Checked && compared == nullptr) {
      check_ = std::make_unique<PlanExchange>(context, plan_, envelope_);
    }
    if (is_long_enough_in_place(context, output_) && consumption_ == Consumption::AsItArrives) {
      synchronisation_ = options.synchronisation;
      context_ = &context;
      if (check_ == nullptr) {
        prepare_in_place(compared != nullptr ? compared : plan_.step.get());
      }
    }
  }

  [[nodiscard]] static Consumption consumption_of(const NeighborAllreduceOptions& options) {
    return options.completion == Completion::OnWait ? Consumption::OnWait
                                                    : Consumption::AsItArrives;
  }

  [[nodiscard]] bool is_in_place() const noexcept { return input_.data == output_.data; }

  /// The comparison of the plans, after the last exchange; null where there was none.
  [[nodiscard]] std::unique_ptr<PlanExchange> take_comparison() noexcept {
    return std::move(comparison_);
  }

  /// As `Operation::next`. @param call its number.
  bool next(ExchangeSpec& spec, std::uint64_t call) {
    if (check_ != nullptr) {
      if (check_->describe(spec)) {
        return true;
      }
      if (context_ != nullptr) {
        const StepGraph compared([this](int rank) { return check_->links_of(rank); });
        prepare_in_place(&compared);
      }
      comparison_ = std::move(check_);
    }
    spec.envelope = envelope_;
    if (in_place_ && !is_declined_) {
      const InPlaceStep step = in_place_->next(spec, call);
      if (step != InPlaceStep::Declined) {
        return step == InPlaceStep::Exchange;
      }
      is_declined_ = true;
    }
    if (std::exchange(has_sent_, true)) {
      return false;
    }
    describe_messages(spec);
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
    if (check_ != nullptr) {
      check_->receive(offset, bytes, pieces[0]);
      return;
    }
    if (in_place_ && !is_declined_) {
      in_place_->receive(offset, bytes, pieces);
      return;
    }
    list_row(
        operands_, own_place_,
        {.data = static_cast<const std::byte*>(input_.data) + offset, .weight = plan_.self_weight},
        pieces);
    sums_->weighted_sum(output_.dtype, static_cast<std::byte*>(output_.data) + offset,
                        {operands_.data(), operands_.size()}, bytes);
  }

 private:
  /// @param graph what is known of the step's graph, or null.
  void prepare_in_place(const StepGraph* graph) {
    if (auto component = ComponentSum::component_of(*context_, plan_, graph, output_.bytes())) {
      in_place_.emplace(*context_, std::move(component), plan_, input_, output_, synchronisation_);
    }
  }

  void describe_messages(ExchangeSpec& spec) {
    const auto* const in = static_cast<const std::byte*>(input_.data);
    outgoing_ = {.data = in, .bytes = output_.bytes(), .readers = plan_.destinations};
    incoming_.clear();
    for (const WeightedRank& source : plan_.sources) {
      incoming_.push_back({.source = source, .bytes = output_.bytes()});
    }
    spec.outgoing = {&outgoing_, 1};
    spec.incoming = {incoming_.data(), incoming_.size()};
    spec.bytes = output_.bytes();
    spec.device = output_.device.kind;
    spec.overwrites_payload = is_in_place();
    spec.consumption = consumption_;
    spec.lane = consumption_ == Consumption::OnWait ? Lane::Deep : Lane::Ordinary;
    if (is_declined_) {
      spec.unneeded_offers = in_place_->unneeded_offers();
    }
  }

  ConstBufferView input_;
  BufferView output_;
  const NeighborPlan& plan_;
  std::size_t own_place_;
  ArithmeticHandle sums_;
  Consumption consumption_;
  const Envelope& envelope_;
  /// Null once the plans are known to agree.
  std::unique_ptr<PlanExchange> check_{};
  std::unique_ptr<PlanExchange> comparison_{};
  /// Not null where the call may be one in place among a component of ranks.
  const Context* context_ = nullptr;
  SynchronisationChoice synchronisation_ = SynchronisationChoice::Auto;
  /// The sum in shared memory; empty where messages do it from the beginning.
  std::optional<ComponentSum> in_place_{};
  /// Messages do it in the end.
  bool is_declined_ = false;
  bool has_sent_ = false;
  Outgoing outgoing_{};
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
  boost::container::small_vector<Operand, 1 + kInlineNeighbors> operands_;
};

}  // namespace bluefog::ops
