#include "ops/neighbor_allreduce.hpp"

#include <memory>
#include <string>
#include <utility>

#include "ops/calls/exchanges/neighbor_average.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

/// @param kept the same name, where it stays.
Envelope envelope_of(const BufferView& output, const std::string& name, const CallName& kept) {
  Envelope envelope = Envelope::make(OpKind::NeighborAllreduce, output.dtype, output.count, name);
  envelope.name = kept.text();
  return envelope;
}

/// The exchanges of one neighbour all-reduce.
class NeighborAllreduce final : public Operation {
 public:
  /// `plan_owner` keeps `plan` alive where the call outlives its caller.
  NeighborAllreduce(ConstBufferView input, BufferView output, const NeighborPlan* plan,
                    std::shared_ptr<const NeighborPlan> plan_owner,
                    const NeighborAllreduceOptions& options, const Context& context)
      : plan_owner_(std::move(plan_owner)),
        name_(options.name),
        envelope_(envelope_of(output, options.name, name_)),
        average_(context, std::move(input), std::move(output), *plan, options, envelope_) {
    if (average_.is_in_place()) {
      mark_in_place();
    }
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  bool next(ExchangeSpec& spec) override { return average_.next(spec, call_index()); }
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    average_.receive(offset, bytes, pieces);
  }

 private:
  std::shared_ptr<const NeighborPlan> plan_owner_;
  CallName name_;
  Envelope envelope_;
  NeighborAverage average_;
};

void check_average(const Context& context, const ConstBufferView& input, const BufferView& output,
                   const NeighborPlan* plan) {
  check_in_and_out(context, OpKind::NeighborAllreduce, input, output, Residence::Anywhere);
  check_plan(context, OpKind::NeighborAllreduce, plan);
  check_operands(context, OpKind::NeighborAllreduce, input, 1 + plan->sources.size());
}

Placement place(Context& context, ConstBufferView& input, BufferView& output,
                const NeighborAllreduceOptions& options) {
  const Consumption consumption = NeighborAverage::consumption_of(options);
  return Placement::of(context, OpKind::NeighborAllreduce, input, output,
                       {.in_order = consumption == Consumption::AsItArrives,
                        .back_on_wait = consumption == Consumption::OnWait},
                       {.consumption = consumption});
}

}  // namespace

Work neighbor_allreduce_nonblocking(Context& context, ConstBufferView input, BufferView output,
                                    std::shared_ptr<const NeighborPlan> plan,
                                    const NeighborAllreduceOptions& options) {
  validate(context, [&] { check_average(context, input, output, plan.get()); });
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
  validate(context, [&] { check_average(context, input, output, plan.get()); });
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
