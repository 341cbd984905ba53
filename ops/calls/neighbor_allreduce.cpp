#include "ops/neighbor_allreduce.hpp"

#include <fmt/format.h>

#include <boost/container/small_vector.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ops/calls/exchanges/component_sum.hpp"
#include "ops/calls/exchanges/plan_exchange.hpp"
#include "ops/calls/row_operands.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"
#include "ops/sums/arithmetic.hpp"
#include "topology/mixing/step_graph.hpp"

namespace bluefog::ops {
namespace {

constexpr OpKind kKind = OpKind::NeighborAllreduce;

Consumption consumption_of(const NeighborAllreduceOptions& options) {
  return options.completion == Completion::OnWait ? Consumption::OnWait : Consumption::AsItArrives;
}

/// The exchange of one neighbour all-reduce; combines piece by piece as they arrive.
class NeighborAllreduce final : public Operation {
 public:
  /// `plan_owner` keeps `plan` alive where the call outlives its caller.
  NeighborAllreduce(ConstBufferView input, BufferView output, const NeighborPlan* plan,
                    std::shared_ptr<const NeighborPlan> plan_owner,
                    const NeighborAllreduceOptions& options, const Context& context)
      : input_(std::move(input)),
        output_(std::move(output)),
        plan_(plan),
        plan_owner_(std::move(plan_owner)),
        own_place_(place_among(plan_->sources, plan_->rank)),
        sums_(arithmetic_on(context, output_.device)),
        consumption_(consumption_of(options)),
        name_(options.name),
        envelope_(Envelope::make(kKind, output_.dtype, output_.count, options.name)) {
    envelope_.name = name_.text();
    if (input_.data == output_.data) {
      mark_in_place();
    }
    if (options.check == PlanCheck::Checked) {
      check_ = std::make_unique<PlanExchange>(context, *plan_, envelope_);
    }
    if (is_long_enough_in_place(context, output_) && consumption_ == Consumption::AsItArrives) {
      synchronisation_ = options.synchronisation;
      context_ = &context;
      if (check_ == nullptr) {
        prepare_in_place(plan_->step.get());
      }
    }
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    if (check_ != nullptr) {
      if (check_->describe(spec)) {
        return true;
      }
      if (context_ != nullptr) {
        const StepGraph compared([this](int rank) { return check_->links_of(rank); });
        prepare_in_place(&compared);
      }
      check_.reset();
    }
    spec.envelope = envelope_;
    if (in_place_ && !is_declined_) {
      const InPlaceStep step = in_place_->next(spec, call_index());
      if (step != InPlaceStep::Declined) {
        return step == InPlaceStep::Exchange;
      }
      is_declined_ = true;
    }
    const auto* const in = static_cast<const std::byte*>(input_.data);
    outgoing_ = {.data = in, .bytes = output_.bytes(), .readers = plan_->destinations};
    incoming_.clear();
    for (const WeightedRank& source : plan_->sources) {
      incoming_.push_back({.source = source, .bytes = output_.bytes()});
    }
    spec.outgoing = {&outgoing_, 1};
    spec.incoming = {incoming_.data(), incoming_.size()};
    spec.bytes = output_.bytes();
    spec.device = output_.device.kind;
    spec.overwrites_payload = input_.data == output_.data;
    spec.consumption = consumption_;
    spec.lane = consumption_ == Consumption::OnWait ? Lane::Deep : Lane::Ordinary;
    if (is_declined_) {
      spec.unneeded_offers = in_place_->unneeded_offers();
    }
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
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
        {.data = static_cast<const std::byte*>(input_.data) + offset, .weight = plan_->self_weight},
        pieces);
    sums_->weighted_sum(output_.dtype, static_cast<std::byte*>(output_.data) + offset,
                        {operands_.data(), operands_.size()}, bytes);
  }

 private:
  /// @param graph what is known of the step's graph, or null.
  void prepare_in_place(const StepGraph* graph) {
    if (auto component = ComponentSum::component_of(*context_, *plan_, graph, output_.bytes())) {
      in_place_.emplace(*context_, std::move(component), *plan_, input_, output_, synchronisation_);
    }
  }

  ConstBufferView input_;
  BufferView output_;
  const NeighborPlan* plan_;
  std::shared_ptr<const NeighborPlan> plan_owner_;
  std::size_t own_place_;
  ArithmeticHandle sums_;
  Consumption consumption_;
  CallName name_;
  Envelope envelope_;
  /// Null once the plans are known to agree.
  std::unique_ptr<PlanExchange> check_{};
  /// Not null where the call may be one in place among a component of ranks.
  const Context* context_ = nullptr;
  SynchronisationChoice synchronisation_ = SynchronisationChoice::Auto;
  /// The sum in shared memory; empty where messages do it from the beginning.
  std::optional<ComponentSum> in_place_{};
  /// Messages do it in the end.
  bool is_declined_ = false;
  Outgoing outgoing_{};
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
  boost::container::small_vector<Operand, 1 + kInlineNeighbors> operands_;
};

void check_arguments(const Context& context, const ConstBufferView& input, const BufferView& output,
                     const NeighborPlan* plan) {
  check_in_and_out(context, kKind, input, output, Residence::Anywhere);
  check_plan(context, kKind, plan);
  check_operands(context, kKind, input, 1 + plan->sources.size());
}

Placement place(Context& context, ConstBufferView& input, BufferView& output,
                const NeighborAllreduceOptions& options) {
  const Consumption consumption = consumption_of(options);
  return Placement::of(context, kKind, input, output,
                       {.in_order = consumption == Consumption::AsItArrives,
                        .back_on_wait = consumption == Consumption::OnWait},
                       {.consumption = consumption});
}

}  // namespace

Work neighbor_allreduce_nonblocking(Context& context, ConstBufferView input, BufferView output,
                                    std::shared_ptr<const NeighborPlan> plan,
                                    const NeighborAllreduceOptions& options) {
  validate(context, [&] { check_arguments(context, input, output, plan.get()); });
  const NeighborPlan* const kept = plan.get();
  const Placement placement = place(context, input, output, options);
  return submit_call<NeighborAllreduce>(context, placement, std::move(input), std::move(output),
                                        kept, std::move(plan), options, context);
}

Work neighbor_allreduce_nonblocking(Context& context, BufferView buffer,
                                    std::shared_ptr<const NeighborPlan> plan,
                                    const NeighborAllreduceOptions& options) {
  ConstBufferView input = buffer;
  return neighbor_allreduce_nonblocking(context, std::move(input), std::move(buffer),
                                        std::move(plan), options);
}

void neighbor_allreduce(Context& context, ConstBufferView input, BufferView output,
                        const std::shared_ptr<const NeighborPlan>& plan,
                        const NeighborAllreduceOptions& options) {
  validate(context, [&] { check_arguments(context, input, output, plan.get()); });
  const Placement placement = place(context, input, output, options);
  run_call<NeighborAllreduce>(context, placement, std::move(input), std::move(output), plan.get(),
                              nullptr, options, context);
}

void neighbor_allreduce(Context& context, BufferView buffer,
                        const std::shared_ptr<const NeighborPlan>& plan,
                        const NeighborAllreduceOptions& options) {
  ConstBufferView input = buffer;
  neighbor_allreduce(context, std::move(input), std::move(buffer), plan, options);
}

}  // namespace bluefog::ops
