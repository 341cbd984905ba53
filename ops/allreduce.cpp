#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/base/copy.hpp"
#include "ops/collectives.hpp"
#include "ops/group.hpp"
#include "ops/plain_sum.hpp"
#include "ops/validation.hpp"

namespace bluefog::ops {
namespace {

constexpr OpKind kKind = OpKind::Allreduce;
/// Up to here every rank sums the whole: one round of messages costs less than two.
constexpr std::size_t kWholeBytes = 4096;
/// Shards begin on multiples of it.
constexpr std::size_t kShardUnit = 64;

std::string_view detail_of(const AllreduceOptions& options) {
  const bool is_sum = options.reduction == Reduction::Sum;
  if (options.scope == Scope::Machine) {
    return is_sum ? "sum in the machine" : "average in the machine";
  }
  return is_sum ? "sum" : "";
}

/// Either one exchange in which everybody sends everything to everybody, or two: shards to their
/// owners, and the owners' sums to everybody.
class Allreduce final : public Operation {
 public:
  Allreduce(BufferView buffer, Group group, const AllreduceOptions& options)
      : buffer_(std::move(buffer)),
        group_(std::move(group)),
        divisor_(options.reduction == Reduction::Average ? static_cast<int>(group_.size()) : 1),
        name_(fingerprint_name(options.name, detail_of(options))),
        envelope_(Envelope::make(kKind, buffer_.dtype, buffer_.count, name_)),
        in_shards_(buffer_.bytes() > kWholeBytes),
        operands_(group_.size()) {
    incoming_.resize(group_.peers.size());
    outgoing_.reserve(group_.peers.size());
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    if (group_.peers.empty()) {
      return false;
    }
    spec.envelope = envelope_;
    if (!in_shards_) {
      describe_whole(spec);
    } else if (!reduces_) {
      describe_reduction(spec);
    } else {
      describe_copies(spec);
    }
    spec.outgoing = outgoing_;
    spec.incoming = incoming_;
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    if (!reduces_) {
      const std::size_t owner = group_.place_of_peer(pieces[0].source_index);
      copy_bytes(data() + shard_begin(owner) + offset, pieces[0].data, bytes);
      return;
    }
    std::byte* const out = data() + (in_shards_ ? shard_begin(group_.own) : 0) + offset;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      operands_[group_.place_of_peer(i)] = pieces[i].data;
    }
    operands_[group_.own] = out;
    plain_sum(buffer_.dtype, out, operands_, bytes, divisor_);
  }

 private:
  void describe_whole(ExchangeSpec& spec) {
    reduces_ = true;
    outgoing_.assign(1, {.data = data(), .bytes = buffer_.bytes(), .readers = group_.peers});
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      incoming_[i] = {.source = group_.peers[i], .bytes = buffer_.bytes()};
    }
    spec.bytes = buffer_.bytes();
    spec.overwrites_payload = true;
  }

  // All ranks send their shards in the same order. An owner needs a shard of all sources at once:
  // in any other order, writers whose memory is full could wait for each other in a ring.
  void describe_reduction(ExchangeSpec& spec) {
    reduces_ = true;
    outgoing_.clear();
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      const std::size_t owner = group_.place_of_peer(i);
      outgoing_.push_back({.data = data() + shard_begin(owner),
                           .bytes = shard_bytes(owner),
                           .readers = {&group_.peers[i], 1}});
      incoming_[i] = {.source = group_.peers[i], .bytes = shard_bytes(group_.own)};
    }
    spec.bytes = shard_bytes(group_.own);
    spec.last = false;
  }

  void describe_copies(ExchangeSpec& spec) {
    reduces_ = false;
    outgoing_.assign(1, {.data = data() + shard_begin(group_.own),
                         .bytes = shard_bytes(group_.own),
                         .readers = group_.peers});
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      incoming_[i].bytes = shard_bytes(group_.place_of_peer(i));
    }
    spec.pace = Pace::Each;
  }

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(buffer_.data); }

  [[nodiscard]] std::size_t shard_begin(std::size_t owner) const noexcept {
    const std::size_t bytes = buffer_.bytes();
    const std::size_t units = (bytes + kShardUnit - 1) / kShardUnit;
    const std::size_t extra = units % group_.size();
    const std::size_t before = units / group_.size() * owner + std::min(owner, extra);
    return std::min(bytes, before * kShardUnit);
  }
  [[nodiscard]] std::size_t shard_bytes(std::size_t owner) const noexcept {
    return shard_begin(owner + 1) - shard_begin(owner);
  }

  BufferView buffer_;
  Group group_;
  int divisor_;
  std::string name_;
  Envelope envelope_;
  bool in_shards_;
  /// The exchange under way sums; otherwise it copies sums of others.
  bool reduces_ = false;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<const std::byte*> operands_;
};

void check_arguments(const Context& context, const BufferView& buffer, Reduction reduction) {
  check_buffer(context, kKind, buffer);
  if (reduction == Reduction::Average) {
    check_floating(context, kKind, buffer.dtype);
  } else if (buffer.dtype == Dtype::Bool) {
    throw InvalidArgument(
        fmt::format("{}: expected a numeric dtype for a sum, found bool", where(context, kKind)));
  }
}

Group group_of(const Context& context, Scope scope) {
  return scope == Scope::Machine ? Group::machine(context) : Group::everyone(context);
}

}  // namespace

Work allreduce_nonblocking(Context& context, BufferView buffer, const AllreduceOptions& options) {
  validate(context, [&] { check_arguments(context, buffer, options.reduction); });
  return context.engine().submit(context.engine().make_operation<Allreduce>(
      std::move(buffer), group_of(context, options.scope), options));
}

void allreduce(Context& context, BufferView buffer, const AllreduceOptions& options) {
  validate(context, [&] { check_arguments(context, buffer, options.reduction); });
  Allreduce operation(std::move(buffer), group_of(context, options.scope), options);
  context.engine().run(operation);
}

}  // namespace bluefog::ops
