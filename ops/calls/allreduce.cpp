#include "ops/allreduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/calls/exchanges/sharded_reduction.hpp"
#include "ops/calls/exchanges/shared_sum.hpp"
#include "ops/calls/group.hpp"
#include "ops/calls/reduction_rule.hpp"
#include "ops/calls/series.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

std::string detail_of(const AllreduceOptions& options) {
  const bool is_average = options.reduction == Reduction::Average;
  if (!options.ranks.empty()) {
    return fmt::format("{} among ranks {}",
                       is_average ? "average" : name_of(fold_of(options.reduction)),
                       fmt::join(options.ranks, ", "));
  }
  if (options.scope == Scope::Machine) {
    return fmt::format("{} in the machine",
                       is_average ? "average" : name_of(fold_of(options.reduction)));
  }
  return is_average ? std::string() : std::string(name_of(fold_of(options.reduction)));
}

Group group_of(const Context& context, const AllreduceOptions& options) {
  if (!options.ranks.empty()) {
    return Group::of(options.ranks, context.rank());
  }
  return options.scope == Scope::Machine ? Group::machine(context) : Group::everyone(context);
}

std::size_t operands_of(const Context& context, const AllreduceOptions& options) {
  if (!options.ranks.empty()) {
    return options.ranks.size();
  }
  return static_cast<std::size_t>(options.scope == Scope::Machine ? context.local_size()
                                                                  : context.size());
}

/// Either one exchange in which everybody sends everything to everybody, or two: shards to their
/// owners, and the owners' sums to everybody.
class Allreduce final : public Operation {
 public:
  Allreduce(const Context& context, const BufferView& buffer, const AllreduceOptions& options)
      : name_(fingerprint_name(options.name, detail_of(options))),
        envelope_(Envelope::make(OpKind::Allreduce, buffer.dtype, buffer.count, name_)),
        reduction_(context, buffer, buffer, group_of(context, options),
                   fold_of(options.reduction)) {
    if (options.buffer == BufferUse::Values) {
      mark_in_place();
    }
    if (SharedSum::is_worth_asking(context, reduction_.group(), buffer)) {
      shared_.emplace(context, reduction_.group(), buffer, buffer, reduction_.rule());
    }
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    if (reduction_.group().peers.empty()) {
      return false;
    }
    spec.envelope = envelope_;
    if (shared_) {
      const InPlaceStep step = shared_->next(spec);
      if (step != InPlaceStep::Declined) {
        return step == InPlaceStep::Exchange;
      }
      shared_.reset();
    }
    if (sums_whole()) {
      reduction_.describe_whole(spec);
    } else if (!has_reduced_) {
      reduction_.describe_reduction(spec);
      has_reduced_ = true;
    } else {
      reduction_.describe_copies(spec);
    }
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    if (shared_) {
      shared_->receive(offset, bytes, pieces);
    } else {
      reduction_.receive(offset, bytes, pieces);
    }
  }

 private:
  // Two ranks move as many bytes either way.
  [[nodiscard]] bool sums_whole() const noexcept {
    return reduction_.is_whole() || reduction_.group().size() == 2;
  }

  std::string name_;
  Envelope envelope_;
  ShardedReduction reduction_;
  /// The sum in shared memory; empty where messages do it.
  std::optional<SharedSum> shared_;
  bool has_reduced_ = false;
};

void check_ranks(const Context& context, const AllreduceOptions& options) {
  const std::vector<int>& ranks = options.ranks;
  if (ranks.empty()) {
    return;
  }
  const bool rises = std::ranges::adjacent_find(ranks, std::greater_equal()) == ranks.end();
  if (!rises || ranks.front() < 0 || ranks.back() >= context.size() ||
      !std::ranges::binary_search(ranks, context.rank())) {
    throw InvalidArgument(fmt::format(
        "{}: ranks: expected rising numbers from 0 to {}, this rank's among them, found "
        "[{}]",
        where(context, OpKind::Allreduce), context.size() - 1, fmt::join(ranks, ", ")));
  }
  if (options.scope != Scope::Global) {
    throw InvalidArgument(
        fmt::format("{}: expected either a scope or ranks, found the scope Machine and ranks [{}]",
                    where(context, OpKind::Allreduce), fmt::join(ranks, ", ")));
  }
}

void check_arguments(const Context& context, const BufferView& buffer,
                     const AllreduceOptions& options) {
  check_buffer(context, OpKind::Allreduce, buffer, Residence::Anywhere);
  if (options.scope != Scope::Global && options.scope != Scope::Machine) {
    throw InvalidArgument(fmt::format("{}: scope: expected Global or Machine, found number {}",
                                      where(context, OpKind::Allreduce),
                                      static_cast<int>(options.scope)));
  }
  check_ranks(context, options);
  check_operands(context, OpKind::Allreduce, buffer, operands_of(context, options));
  check_reduction(context, OpKind::Allreduce, options.reduction, buffer);
}

}  // namespace

Work allreduce_nonblocking(Context& context, BufferView buffer, const AllreduceOptions& options) {
  validate(context, [&] { check_arguments(context, buffer, options); });
  const Placement placement = Placement::of(context, OpKind::Allreduce, buffer, {});
  return submit_call<Allreduce>(context, placement, context, buffer, options);
}

std::shared_ptr<Operation> make_allreduce(Context& context, BufferView buffer,
                                          const AllreduceOptions& options) {
  check_arguments(context, buffer, options);
  auto owner = std::exchange(buffer.owner, nullptr);
  auto operation = context.core().engine().make_operation<Allreduce>(context, buffer, options);
  operation->keep_alive(std::move(owner));
  return operation;
}

void allreduce(Context& context, BufferView buffer, const AllreduceOptions& options) {
  validate(context, [&] { check_arguments(context, buffer, options); });
  const Placement placement = Placement::of(context, OpKind::Allreduce, buffer, {});
  run_call<Allreduce>(context, placement, context, buffer, options);
}

}  // namespace bluefog::ops
