#include "ops/pair_gossip.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"
#include "ops/sums/combine.hpp"

namespace bluefog::ops {
namespace {

class PairGossip final : public Operation {
 public:
  PairGossip(int rank, ConstBufferView input, BufferView output, int target,
             const PairGossipOptions& options)
      : input_(std::move(input)),
        output_(std::move(output)),
        target_{.rank = target},
        own_place_(rank < target ? 0 : 1),
        self_weight_(options.self_weight),
        name_(options.name),
        envelope_(Envelope::make(OpKind::PairGossip, output_.dtype, output_.count, options.name)),
        outgoing_{.data = static_cast<const std::byte*>(input_.data),
                  .bytes = output_.bytes(),
                  .readers = {&target_, 1}},
        incoming_{.source = {.rank = target, .weight = options.pair_weight},
                  .bytes = output_.bytes()} {
    envelope_.name = name_.text();
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  [[nodiscard]] int partner() const noexcept override { return target_.rank; }

  bool next(ExchangeSpec& spec) override {
    spec.envelope = envelope_;
    spec.outgoing = {&outgoing_, 1};
    spec.incoming = {&incoming_, 1};
    spec.lane = Lane::Pair;
    spec.bytes = output_.bytes();
    spec.overwrites_payload = input_.data == output_.data;
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    std::array<Operand, 2> operands{};
    operands[own_place_] = {.data = static_cast<const std::byte*>(input_.data) + offset,
                            .weight = self_weight_};
    operands[1 - own_place_] = {.data = pieces[0].data, .weight = pieces[0].weight};
    weighted_sum(output_.dtype, static_cast<std::byte*>(output_.data) + offset, operands, bytes);
  }

 private:
  ConstBufferView input_;
  BufferView output_;
  WeightedRank target_;
  /// This rank's place among the two, by rising rank.
  std::size_t own_place_;
  double self_weight_;
  CallName name_;
  Envelope envelope_;
  Outgoing outgoing_;
  Incoming incoming_;
};

/// Checks the target first: where it is no other rank there is nobody to tell of a refusal.
void check_target(const Context& context, int target) {
  if (target < 0 || target >= context.size() || target == context.rank()) {
    throw InvalidArgument(
        fmt::format("{}: expected another rank of 0 to {} as the target, found {}",
                    where(context, OpKind::PairGossip), context.size() - 1, target));
  }
}

void check_arguments(Context& context, const ConstBufferView& input, const BufferView& output,
                     int target, const PairGossipOptions& options) {
  check_target(context, target);
  validate(
      context,
      [&] {
        check_in_and_out(context, OpKind::PairGossip, input, output, Residence::Anywhere);
        if (!std::isfinite(options.self_weight) || !std::isfinite(options.pair_weight)) {
          throw InvalidArgument(fmt::format(
              "{}: expected finite weights, found self_weight {} and pair_weight {}",
              where(context, OpKind::PairGossip), options.self_weight, options.pair_weight));
        }
      },
      target);
}

/// Goes through the host: NCCL asks for an order among calls, and pairs have none among each other.
Placement place(Context& context, ConstBufferView& input, BufferView& output, int target) {
  return Placement::of(context, OpKind::PairGossip, input, output, {.in_order = true},
                       {.way = DeviceWay::Host, .partner = target});
}

}  // namespace

Work pair_gossip_nonblocking(Context& context, ConstBufferView input, BufferView output, int target,
                             const PairGossipOptions& options) {
  check_arguments(context, input, output, target, options);
  const Placement placement = place(context, input, output, target);
  return submit_call<PairGossip>(context, placement, context.rank(), std::move(input),
                                 std::move(output), target, options);
}

Work pair_gossip_nonblocking(Context& context, BufferView buffer, int target,
                             const PairGossipOptions& options) {
  ConstBufferView input = buffer;
  return pair_gossip_nonblocking(context, std::move(input), std::move(buffer), target, options);
}

void pair_gossip(Context& context, ConstBufferView input, BufferView output, int target,
                 const PairGossipOptions& options) {
  check_arguments(context, input, output, target, options);
  const Placement placement = place(context, input, output, target);
  run_call<PairGossip>(context, placement, context.rank(), std::move(input), std::move(output),
                       target, options);
}

void pair_gossip(Context& context, BufferView buffer, int target,
                 const PairGossipOptions& options) {
  ConstBufferView input = buffer;
  pair_gossip(context, std::move(input), std::move(buffer), target, options);
}

}  // namespace bluefog::ops
