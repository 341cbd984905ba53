#include <fmt/format.h>

#include <string>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "ops/calls/group.hpp"
#include "ops/calls/reduction_rule.hpp"
#include "ops/calls/series.hpp"
#include "ops/calls/validation.hpp"
#include "ops/reduce.hpp"
#include "ops/sums/arithmetic.hpp"

namespace bluefog::ops {
namespace {

/// One exchange: each rank's part to its owner, which folds what all have for it.
class ReduceScatter final : public Operation {
 public:
  ReduceScatter(const Context& context, std::vector<ConstBufferView> inputs, BufferView output,
                const ReduceOptions& options)
      : inputs_(std::move(inputs)),
        output_(std::move(output)),
        group_(Group::everyone(context)),
        rule_(fold_of(options.reduction)),
        arithmetic_(arithmetic_on(context, output_.device)),
        name_(fingerprint_name(options.name, name_of(rule_))),
        // Parts of different ranks may differ in size; what two of them have for each other not.
        envelope_(Envelope::make(OpKind::ReduceScatter, output_.dtype, -1, name_)),
        incoming_(group_.peers.size()),
        operands_(group_.size()) {}

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  // All ranks send in the same order, as for the shards of an all-reduce.
  bool next(ExchangeSpec& spec) override {
    outgoing_.reserve(group_.peers.size());
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      const ConstBufferView& input = inputs_[group_.place_of_peer(i)];
      outgoing_.push_back({.data = static_cast<const std::byte*>(input.data),
                           .bytes = input.bytes(),
                           .readers = {&group_.peers[i], 1}});
      incoming_[i] = {.source = group_.peers[i], .bytes = output_.bytes()};
    }
    spec.envelope = envelope_;
    spec.outgoing = {outgoing_.data(), outgoing_.size()};
    spec.incoming = {incoming_.data(), incoming_.size()};
    spec.bytes = output_.bytes();
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      operands_[group_.place_of_peer(i)] = pieces[i].data;
    }
    operands_[group_.own] = static_cast<const std::byte*>(inputs_[group_.own].data) + offset;
    arithmetic_->fold(rule_, output_.dtype, static_cast<std::byte*>(output_.data) + offset,
                      {operands_.data(), operands_.size()}, bytes);
  }

 private:
  std::vector<ConstBufferView> inputs_;
  BufferView output_;
  Group group_;
  Fold rule_;
  ArithmeticHandle arithmetic_;
  std::string name_;
  Envelope envelope_;
  boost::container::small_vector<Outgoing, kInlineNeighbors> outgoing_;
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
  boost::container::small_vector<const std::byte*, 1 + kInlineNeighbors> operands_;
};

void check_arguments(const Context& context, const std::vector<ConstBufferView>& inputs,
                     const BufferView& output, const ReduceOptions& options) {
  check_buffer(context, OpKind::ReduceScatter, output);
  check_reduction(context, OpKind::ReduceScatter, options.reduction, output);
  if (inputs.size() != static_cast<std::size_t>(context.size())) {
    throw InvalidArgument(fmt::format("{}: inputs: expected {} buffers, found {}",
                                      where(context, OpKind::ReduceScatter), context.size(),
                                      inputs.size()));
  }
  const auto own_part = static_cast<std::size_t>(context.rank());
  for (std::size_t part = 0; part < inputs.size(); ++part) {
    const ConstBufferView& input = inputs[part];
    check_buffer(context, OpKind::ReduceScatter, input);
    if (input.dtype != output.dtype) {
      throw InvalidArgument(fmt::format("{}: expected inputs of the output's dtype, {}, found {}",
                                        where(context, OpKind::ReduceScatter),
                                        name_of(output.dtype), name_of(input.dtype)));
    }
    if (part != own_part) {
      check_sent_apart(context, OpKind::ReduceScatter, input, output);
    } else if (overlaps_in_part(input, output)) {
      throw InvalidArgument(
          fmt::format("{}: expected this rank's own input to be the output's memory or apart from "
                      "it, found them overlapping",
                      where(context, OpKind::ReduceScatter)));
    }
  }
  const ConstBufferView& own = inputs[own_part];
  if (own.count != output.count) {
    throw InvalidArgument(
        fmt::format("{}: expected the input for this rank to have the size of its output, {} "
                    "elements, found {}",
                    where(context, OpKind::ReduceScatter), output.count, own.count));
  }
}

std::shared_ptr<Operation> operation_of(Context& context, std::vector<ConstBufferView> inputs,
                                        BufferView output, const ReduceOptions& options) {
  std::vector<std::shared_ptr<const void>> owners{std::exchange(output.owner, nullptr)};
  for (ConstBufferView& input : inputs) {
    owners.push_back(std::exchange(input.owner, nullptr));
  }
  auto operation = context.core().engine().make_operation<ReduceScatter>(
      context, std::move(inputs), std::move(output), options);
  for (auto& owner : owners) {
    operation->keep_alive(std::move(owner));
  }
  return operation;
}

}  // namespace

Work reduce_scatter_nonblocking(Context& context, std::vector<ConstBufferView> inputs,
                                BufferView output, const ReduceOptions& options) {
  validate(context, [&] { check_arguments(context, inputs, output, options); });
  return context.core().engine().submit(
      operation_of(context, std::move(inputs), std::move(output), options));
}

std::shared_ptr<Operation> make_reduce_scatter(Context& context,
                                               std::vector<ConstBufferView> inputs,
                                               BufferView output, const ReduceOptions& options) {
  check_arguments(context, inputs, output, options);
  return operation_of(context, std::move(inputs), std::move(output), options);
}

}  // namespace bluefog::ops
