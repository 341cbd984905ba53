#include "ops/reduce.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "ops/calls/exchanges/sharded_reduction.hpp"
#include "ops/calls/group.hpp"
#include "ops/calls/reduction_rule.hpp"
#include "ops/calls/validation.hpp"
#include "ops/sums/arithmetic.hpp"

namespace bluefog::ops {
namespace {

constexpr std::size_t kWholeBytes = 4096;

/// Either one exchange in which everybody sends everything to the root, or two: shards to their
/// owners, which fold them, and the results to the root.
class Reduce final : public Operation {
 public:
  Reduce(const Context& context, BufferView buffer, int root, const ReduceOptions& options)
      : buffer_(std::move(buffer)),
        group_(Group::everyone(context)),
        root_{.rank = root},
        is_root_(context.rank() == root),
        rule_(fold_of(options.reduction)),
        arithmetic_(arithmetic_on(context, buffer_.device)),
        name_(fingerprint_name(options.name, fmt::format("{}, root {}", name_of(rule_), root))),
        envelope_(Envelope::make(OpKind::Reduce, buffer_.dtype, buffer_.count, name_)),
        incoming_(group_.peers.size()),
        operands_(group_.size()) {
    outgoing_.reserve(group_.peers.size());
    if (is_root_) {
      mark_in_place();
    }
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    if (group_.peers.empty()) {
      return false;
    }
    spec.envelope = envelope_;
    if (buffer_.bytes() <= kWholeBytes || group_.size() == 2) {
      describe_whole(spec);
    } else if (!has_reduced_) {
      describe_reduction(spec);
      has_reduced_ = true;
    } else {
      describe_results(spec);
    }
    spec.outgoing = {outgoing_.data(), outgoing_.size()};
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    if (!folds_) {
      const std::size_t owner = group_.place_of_peer(pieces[0].source_index);
      copy_bytes(data() + shards().begin(owner) + offset, pieces[0].data, bytes);
      return;
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      operands_[group_.place_of_peer(i)] = pieces[i].data;
    }
    operands_[group_.own] = data() + fold_begin_ + offset;
    arithmetic_->fold(rule_, buffer_.dtype, result_ + offset, {operands_.data(), operands_.size()},
                      bytes);
  }

 private:
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(buffer_.data); }
  [[nodiscard]] Shards shards() const noexcept {
    return {.bytes = buffer_.bytes(), .owners = group_.size()};
  }

  void expect_all(ExchangeSpec& spec, std::size_t bytes) {
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      incoming_[i] = {.source = group_.peers[i], .bytes = bytes};
    }
    spec.incoming = {incoming_.data(), incoming_.size()};
    spec.bytes = bytes;
  }

  void describe_whole(ExchangeSpec& spec) {
    if (is_root_) {
      result_ = data();
      expect_all(spec, buffer_.bytes());
    } else {
      outgoing_.assign(1, {.data = data(), .bytes = buffer_.bytes(), .readers = {&root_, 1}});
    }
  }

  // The root's shard is folded in place, others beside their buffers, which stay as they are.
  void describe_reduction(ExchangeSpec& spec) {
    const Shards all = shards();
    fold_begin_ = all.begin(group_.own);
    if (is_root_) {
      result_ = data() + fold_begin_;
    } else {
      scratch_.resize(all.size(group_.own));
      result_ = scratch_.data();
    }
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      const std::size_t owner = group_.place_of_peer(i);
      outgoing_.push_back({.data = data() + all.begin(owner),
                           .bytes = all.size(owner),
                           .readers = {&group_.peers[i], 1}});
    }
    expect_all(spec, all.size(group_.own));
    spec.last = false;
  }

  void describe_results(ExchangeSpec& spec) {
    folds_ = false;
    spec.pace = Pace::Each;
    if (!is_root_) {
      outgoing_.assign(1,
                       {.data = scratch_.data(), .bytes = scratch_.size(), .readers = {&root_, 1}});
      return;
    }
    outgoing_.clear();
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      incoming_[i] = {.source = group_.peers[i], .bytes = shards().size(group_.place_of_peer(i))};
    }
    spec.incoming = {incoming_.data(), incoming_.size()};
  }

  BufferView buffer_;
  Group group_;
  WeightedRank root_;
  bool is_root_;
  Fold rule_;
  ArithmeticHandle arithmetic_;
  std::string name_;
  Envelope envelope_;
  bool has_reduced_ = false;
  /// Whether the exchange under way folds, the buffer from `fold_begin_` on into `result_`, or
  /// copies.
  bool folds_ = true;
  std::size_t fold_begin_ = 0;
  std::byte* result_ = nullptr;
  std::vector<std::byte> scratch_;
  boost::container::small_vector<Outgoing, kInlineNeighbors> outgoing_;
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
  boost::container::small_vector<const std::byte*, 1 + kInlineNeighbors> operands_;
};

}  // namespace

Work reduce_nonblocking(Context& context, BufferView buffer, int root,
                        const ReduceOptions& options) {
  validate(context, [&] {
    check_buffer(context, OpKind::Reduce, buffer);
    check_reduction(context, OpKind::Reduce, options.reduction, buffer);
    if (root < 0 || root >= context.size()) {
      throw InvalidArgument(fmt::format("{}: expected a root in 0 to {}, found {}",
                                        where(context, OpKind::Reduce), context.size() - 1, root));
    }
  });
  auto owner = std::exchange(buffer.owner, nullptr);
  Engine& engine = context.core().engine();
  auto operation = engine.make_operation<Reduce>(context, std::move(buffer), root, options);
  operation->keep_alive(std::move(owner));
  return engine.submit(std::move(operation));
}

}  // namespace bluefog::ops
