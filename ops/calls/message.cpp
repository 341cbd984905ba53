#include "ops/message.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/engine/letters.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

/// One end of a message.
class MessageCall : public Operation {
 public:
  MessageCall(int partner, const ConstBufferView& buffer, int tag, bool is_received)
      : partner_{.rank = partner},
        letter_{.tag = fmt::format("tag {}", tag), .is_received = is_received},
        envelope_(Envelope::make(OpKind::Message, buffer.dtype, buffer.count, letter_.tag)) {}

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  [[nodiscard]] int partner() const noexcept override { return partner_.rank; }
  [[nodiscard]] Letter* letter() noexcept override { return &letter_; }

 protected:
  void describe(ExchangeSpec& spec) const {
    spec.envelope = envelope_;
    spec.pace = Pace::Each;
    spec.lane = Lane::Mail;
    spec.letter = &letter_;
  }
  [[nodiscard]] const WeightedRank& partner_rank() const noexcept { return partner_; }
  [[nodiscard]] std::uint16_t sequence() const noexcept { return letter_.sequence; }

 private:
  WeightedRank partner_;
  Letter letter_;
  Envelope envelope_;
};

class Send final : public MessageCall {
 public:
  Send(ConstBufferView buffer, int target, int tag)
      : MessageCall(target, buffer, tag, false),
        outgoing_{.data = static_cast<const std::byte*>(buffer.data),
                  .bytes = buffer.bytes(),
                  .readers = {&partner_rank(), 1}} {}

  bool next(ExchangeSpec& spec) override {
    describe(spec);
    spec.outgoing = {&outgoing_, 1};
    spec.least_step = sequence();  // by which its receipt knows it
    return true;
  }
  void receive(std::size_t /*offset*/, std::size_t /*bytes*/,
               std::span<const Piece> /*pieces*/) override {}

 private:
  Outgoing outgoing_;
};

class Receive final : public MessageCall {
 public:
  Receive(BufferView buffer, int source, int tag)
      : MessageCall(source, buffer, tag, true),
        to_(static_cast<std::byte*>(buffer.data)),
        incoming_{.source = partner_rank(), .bytes = buffer.bytes()} {}

  bool next(ExchangeSpec& spec) override {
    describe(spec);
    spec.incoming = {&incoming_, 1};
    return true;
  }
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    copy_bytes(to_ + offset, pieces[0].data, bytes);
  }

 private:
  std::byte* to_;
  Incoming incoming_;
};

void check_arguments(const Context& context, std::string_view call, std::string_view role,
                     const ConstBufferView& buffer, int partner, int tag) {
  if (partner < 0 || partner >= context.size() || partner == context.rank()) {
    throw InvalidArgument(
        fmt::format("rank {}, {}: expected another rank of 0 to {} as the {}, "
                    "found {}",
                    context.rank(), call, context.size() - 1, role, partner));
  }
  if (tag < 0) {
    throw InvalidArgument(
        fmt::format("rank {}, {}: Tag must be nonnegative: expected 0 or more, found {}",
                    context.rank(), call, tag));
  }
  check_buffer(context, OpKind::Message, buffer);
}

template <typename Kind, typename View>
Work start(Context& context, View buffer, int partner, int tag) {
  auto owner = std::exchange(buffer.owner, nullptr);
  Engine& engine = context.core().engine();
  auto operation = engine.make_operation<Kind>(std::move(buffer), partner, tag);
  operation->keep_alive(std::move(owner));
  return engine.submit(std::move(operation));
}

}  // namespace

Work send_nonblocking(Context& context, ConstBufferView buffer, int target, int tag) {
  check_arguments(context, "send", "target", buffer, target, tag);
  return start<Send>(context, std::move(buffer), target, tag);
}

Work receive_nonblocking(Context& context, BufferView buffer, int source, int tag) {
  check_arguments(context, "receive", "source", buffer, source, tag);
  return start<Receive>(context, std::move(buffer), source, tag);
}

}  // namespace bluefog::ops
