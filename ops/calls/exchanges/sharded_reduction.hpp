#pragma once

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <span>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "ops/calls/group.hpp"
#include "ops/sums/arithmetic.hpp"

namespace bluefog::ops {

/// The division of `bytes` bytes among `owners` owners, in pieces that begin on multiples of 64.
struct Shards {
  std::size_t bytes = 0;
  std::size_t owners = 1;

  [[nodiscard]] std::size_t begin(std::size_t owner) const noexcept {
    constexpr std::size_t kUnit = 64;
    const std::size_t units = (bytes + kUnit - 1) / kUnit;
    const std::size_t extra = units % owners;
    const std::size_t before = units / owners * owner + std::min(owner, extra);
    return std::min(bytes, before * kUnit);
  }
  [[nodiscard]] std::size_t size(std::size_t owner) const noexcept {
    return begin(owner + 1) - begin(owner);
  }
};

/// The exchanges by which a group sums: either everybody sends everything to everybody, or shards
/// go to their owners, which sum them, and the sums to everybody. Operands are added by rising
/// rank; an average counts from the lowest rank's value (`mean`). Other rules fold alike.
class ShardedReduction {
 public:
  /// @param output like `input`: the same memory (in place) or apart.
  ShardedReduction(const Context& context, ConstBufferView input, BufferView output, Group group,
                   Fold rule);

  /// Short buffers are summed whole: one round of messages costs less than two.
  [[nodiscard]] bool is_whole() const noexcept;
  [[nodiscard]] const Group& group() const noexcept { return group_; }
  [[nodiscard]] Fold rule() const noexcept { return rule_; }
  [[nodiscard]] Shards shards() const noexcept {
    return {.bytes = output_.bytes(), .owners = group_.size()};
  }

  /// Describes the exchange by which every rank gets the sum of everything.
  void describe_whole(ExchangeSpec& spec);
  /// Describes the exchange by which this rank's shard becomes the sum.
  void describe_reduction(ExchangeSpec& spec);
  /// Describes the exchange by which the other shards become what their owners hold.
  void describe_copies(ExchangeSpec& spec);

  /// Takes in what arrives in the exchange that was described last.
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces);

 private:
  [[nodiscard]] const std::byte* in() const noexcept {
    return static_cast<const std::byte*>(input_.data);
  }
  [[nodiscard]] std::byte* out() const noexcept { return static_cast<std::byte*>(output_.data); }
  void list_messages(ExchangeSpec& spec) const noexcept;

  ConstBufferView input_;
  BufferView output_;
  Group group_;
  ArithmeticHandle arithmetic_;
  Fold rule_;
  /// Whether the exchange under way sums, from `sum_begin_` on, or copies.
  bool sums_ = false;
  std::size_t sum_begin_ = 0;
  boost::container::small_vector<Outgoing, kInlineNeighbors> outgoing_;
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
  boost::container::small_vector<const std::byte*, 1 + kInlineNeighbors> operands_;
};

}  // namespace bluefog::ops
