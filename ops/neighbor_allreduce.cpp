#include "ops/neighbor_allreduce.hpp"

#include <fmt/format.h>

#include <boost/container/small_vector.hpp>
#include <memory>
#include <string>
#include <utility>

#include "ops/arithmetic.hpp"
#include "ops/plan_exchange.hpp"
#include "ops/start_call.hpp"
#include "ops/validation.hpp"

namespace bluefog::ops {
namespace {

constexpr OpKind kKind = OpKind::NeighborAllreduce;

/// The exchange of one neighbour all-reduce; combines piece by piece as they arrive.
class NeighborAllreduce final : public Operation {
 public:
  /// `plan` and `plan_owner`, which keeps it alive where the call outlives its caller.
  NeighborAllreduce(ConstBufferView input, BufferView output, const NeighborPlan* plan,
                    std::shared_ptr<const NeighborPlan> plan_owner,
                    const NeighborAllreduceOptions& options, const Context& context)
      : input_(std::move(input)),
        output_(std::move(output)),
        plan_(plan),
        plan_owner_(std::move(plan_owner)),
        sums_(arithmetic_on(context, output_.device)),
        completion_(options.completion),
        name_(options.name),
        envelope_(Envelope::make(kKind, output_.dtype, output_.count, options.name)) {
    envelope_.name = name_.text();
    if (options.check == PlanCheck::Checked) {
      check_ = std::make_unique<PlanExchange>(context, *plan_, envelope_);
    }
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    if (PlanExchange::comes_next(check_, spec)) {
      return true;
    }
    const auto* const in = static_cast<const std::byte*>(input_.data);
    outgoing_ = {.data = in, .bytes = output_.bytes(), .readers = plan_->destinations};
    incoming_.clear();
    for (const WeightedRank& source : plan_->sources) {
      incoming_.push_back({.source = source, .bytes = output_.bytes()});
    }
    operands_.resize(1 + incoming_.size());
    spec.envelope = envelope_;
    spec.outgoing = {&outgoing_, 1};
    spec.incoming = {incoming_.data(), incoming_.size()};
    spec.bytes = output_.bytes();
    spec.device = output_.device.kind;
    spec.overwrites_payload = input_.data == output_.data;
    if (completion_ == Completion::OnWait) {
      spec.lane = Lane::Deep;
      spec.consumption = Consumption::OnWait;
    }
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    if (check_ != nullptr) {
      check_->receive(offset, bytes, pieces[0]);
      return;
    }
    operands_[0] = {.data = static_cast<const std::byte*>(input_.data) + offset,
                    .weight = plan_->self_weight};
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      operands_[i + 1] = {.data = pieces[i].data, .weight = pieces[i].weight};
    }
    sums_->weighted_sum(output_.dtype, static_cast<std::byte*>(output_.data) + offset,
                        {operands_.data(), operands_.size()}, bytes);
  }

 private:
  ConstBufferView input_;
  BufferView output_;
  const NeighborPlan* plan_;
  std::shared_ptr<const NeighborPlan> plan_owner_;
  ArithmeticHandle sums_;
  Completion completion_;
  CallName name_;
  Envelope envelope_;
  /// Null once the plans are known to agree.
  std::unique_ptr<PlanExchange> check_{};
  Outgoing outgoing_{};
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
  boost::container::small_vector<Operand, 1 + kInlineNeighbors> operands_;
};

void check_arguments(const Context& context, const ConstBufferView& input, const BufferView& output,
                     const NeighborPlan* plan, const NeighborAllreduceOptions& options) {
  check_in_and_out(context, kKind, input, output, Residence::Anywhere);
  check_plan(context, kKind, plan);
  if (options.completion == Completion::AsItArrives) {
    check_operands(context, kKind, input, 1 + plan->sources.size());
  }
}

/// Messages that are kept until somebody waits are kept on the host.
Placement place(Context& context, ConstBufferView& input, BufferView& output,
                const NeighborAllreduceOptions& options) {
  const bool keeps = options.completion == Completion::OnWait;
  return Placement::of(context, kKind, input, output, {.in_order = !keeps},
                       {.way = keeps ? DeviceWay::Host : DeviceWay::Nccl});
}

}  // namespace

Work neighbor_allreduce_nonblocking(Context& context, ConstBufferView input, BufferView output,
                                    std::shared_ptr<const NeighborPlan> plan,
                                    const NeighborAllreduceOptions& options) {
  validate(context, [&] { check_arguments(context, input, output, plan.get(), options); });
  const NeighborPlan* const kept = plan.get();
  const Placement placement = place(context, input, output, options);
  return submit_call<NeighborAllreduce>(context, placement, std::move(input), std::move(output), kept,
                                        std::move(plan), options, context);
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
  validate(context, [&] { check_arguments(context, input, output, plan.get(), options); });
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
