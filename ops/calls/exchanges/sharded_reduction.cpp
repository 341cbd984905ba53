#include "ops/calls/exchanges/sharded_reduction.hpp"

#include <utility>

#include "bluefog_cpp/base/copy.hpp"

namespace bluefog::ops {
namespace {

constexpr std::size_t kWholeBytes = 4096;

}  // namespace

ShardedReduction::ShardedReduction(const Context& context, ConstBufferView input, BufferView output,
                                   Group group, Fold rule)
    : input_(std::move(input)),
      output_(std::move(output)),
      group_(std::move(group)),
      arithmetic_(arithmetic_on(context, output_.device)),
      rule_(rule),
      incoming_(group_.peers.size()),
      operands_(group_.size()) {
  outgoing_.reserve(group_.peers.size());
}

bool ShardedReduction::is_whole() const noexcept { return output_.bytes() <= kWholeBytes; }

void ShardedReduction::list_messages(ExchangeSpec& spec) const noexcept {
  spec.outgoing = {outgoing_.data(), outgoing_.size()};
  spec.incoming = {incoming_.data(), incoming_.size()};
  spec.device = output_.device.kind;
}

void ShardedReduction::describe_whole(ExchangeSpec& spec) {
  sums_ = true;
  sum_begin_ = 0;
  outgoing_.assign(1, {.data = in(), .bytes = output_.bytes(), .readers = group_.others()});
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    incoming_[i] = {.source = group_.peers[i], .bytes = output_.bytes()};
  }
  list_messages(spec);
  spec.bytes = output_.bytes();
  spec.overwrites_payload = in() == out();
}

// All ranks send their shards in the same order. An owner needs a shard of all sources at once:
// in any other order, writers of one stream for all readers, whose memory is full, could wait for
// each other in a ring.
void ShardedReduction::describe_reduction(ExchangeSpec& spec) {
  sums_ = true;
  sum_begin_ = shards().begin(group_.own);
  outgoing_.clear();
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    const std::size_t owner = group_.place_of_peer(i);
    outgoing_.push_back({.data = in() + shards().begin(owner),
                         .bytes = shards().size(owner),
                         .readers = {&group_.peers[i], 1}});
    incoming_[i] = {.source = group_.peers[i], .bytes = shards().size(group_.own)};
  }
  list_messages(spec);
  spec.bytes = shards().size(group_.own);
  spec.last = false;
}

void ShardedReduction::describe_copies(ExchangeSpec& spec) {
  sums_ = false;
  outgoing_.assign(1, {.data = out() + shards().begin(group_.own),
                       .bytes = shards().size(group_.own),
                       .readers = group_.others()});
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    const std::size_t owner = group_.place_of_peer(i);
    incoming_[i] = {.source = group_.peers[i],
                    .bytes = shards().size(owner),
                    .place = out() + shards().begin(owner)};
  }
  list_messages(spec);
  spec.pace = Pace::Each;
}

void ShardedReduction::receive(std::size_t offset, std::size_t bytes,
                               std::span<const Piece> pieces) {
  if (!sums_) {
    const std::size_t owner = group_.place_of_peer(pieces[0].source_index);
    copy_bytes(out() + shards().begin(owner) + offset, pieces[0].data, bytes);
    return;
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    operands_[group_.place_of_peer(i)] = pieces[i].data;
  }
  const std::size_t begin = sum_begin_ + offset;
  operands_[group_.own] = in() + begin;
  const std::span<const std::byte* const> operands(operands_.data(), operands_.size());
  arithmetic_->fold(rule_, output_.dtype, out() + begin, operands, bytes);
}

}  // namespace bluefog::ops
