#include "ops/hierarchical_neighbor_allreduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/copy.hpp"
#include "ops/calls/exchanges/plan_exchange.hpp"
#include "ops/calls/exchanges/sharded_reduction.hpp"
#include "ops/calls/group.hpp"
#include "ops/calls/row_operands.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"
#include "ops/sums/combine.hpp"

namespace bluefog::ops {
namespace {

/// Part of the buffer that goes to, or comes from, one rank of another machine.
struct Overlap {
  WeightedRank rank{};
  std::size_t machine = 0;  ///< index into the plan's list
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The parts of [begin, end) that the ranks of `machines` hold, by machine and then by place.
std::vector<Overlap> overlaps(const MachineLayout& layout,
                              const std::vector<WeightedRank>& machines, std::size_t bytes,
                              std::size_t begin, std::size_t end) {
  std::vector<Overlap> result;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    const auto& ranks = layout.ranks_of(machines[m].rank);
    const Shards shards{.bytes = bytes, .owners = ranks.size()};
    for (std::size_t owner = 0; owner < ranks.size(); ++owner) {
      const std::size_t low = std::max(begin, shards.begin(owner));
      const std::size_t high = std::min(end, shards.begin(owner + 1));
      if (low < high) {
        result.push_back({{.rank = ranks[owner], .weight = machines[m].weight}, m, low, high});
      }
    }
  }
  return result;
}

/// For short buffers: rank k of a machine hears rank k mod L of each other machine of L ranks.
int twin_of(const MachineLayout& layout, int local_rank, int machine) {
  const auto& ranks = layout.ranks_of(machine);
  return ranks[static_cast<std::size_t>(local_rank) % ranks.size()];
}

/// The plan between ranks that `twin_of` gives. Checked calls compare it too, since every rank's
/// machine plan has a say in it.
NeighborPlan plan_between_twins(const MachineLayout& layout, int rank, const NeighborPlan& plan) {
  NeighborPlan twins = NeighborPlan::alone(rank, layout.size());
  twins.self_weight = plan.self_weight;
  const int local_rank = layout.local_rank_of(rank);
  for (const WeightedRank& source : plan.sources) {
    twins.sources.push_back(
        {.rank = twin_of(layout, local_rank, source.rank), .weight = source.weight});
  }
  for (const WeightedRank& destination : plan.destinations) {
    for (const int reader : layout.ranks_of(destination.rank)) {
      if (twin_of(layout, layout.local_rank_of(reader), plan.rank) == rank) {
        twins.destinations.push_back({.rank = reader, .weight = destination.weight});
      }
    }
  }
  const auto by_rank = [](const WeightedRank& a, const WeightedRank& b) { return a.rank < b.rank; };
  std::ranges::sort(twins.destinations, by_rank);
  return twins;
}

class HierarchicalNeighborAllreduce final : public Operation {
 public:
  HierarchicalNeighborAllreduce(const Context& context, ConstBufferView input, BufferView output,
                                const NeighborPlan& plan, const HierarchicalOptions& options)
      : input_(std::move(input)),
        output_(std::move(output)),
        self_weight_(plan.self_weight),
        own_place_(place_among(plan.sources, plan.rank)),
        name_(options.name),
        envelope_(Envelope::make(OpKind::HierarchicalNeighborAllreduce, output_.dtype,
                                 output_.count, options.name)),
        sums_(arithmetic_on(context, output_.device)),
        local_(context, input_, output_, Group::machine(context), Fold::Mean),
        is_whole_(local_.is_whole()),
        begin_(is_whole_ ? 0 : local_.shards().begin(local_.group().own)),
        end_(is_whole_ ? output_.bytes() : local_.shards().begin(local_.group().own + 1)),
        uses_scratch_(!is_whole_ && !divides_alike(context.machines(), plan)) {
    envelope_.name = name_.text();
    if (input_.data == output_.data && options.buffer == BufferUse::Values) {
      mark_in_place();
    }
    NeighborPlan twins = plan_between_twins(context.machines(), context.rank(), plan);
    if (uses_scratch_) {
      route_overlaps(context.machines(), plan);
    } else {
      route_whole_shard(twins);
    }
    if (options.check == PlanCheck::Checked) {
      std::ranges::sort(twins.sources, {}, &WeightedRank::rank);
      check_ = std::make_unique<PlanExchange>(context, twins, plan, envelope_);
    }
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    if (PlanExchange::comes_next(check_, spec)) {
      return true;
    }
    spec.envelope = envelope_;
    if (stage_ == Stage::Local) {
      stage_ = Stage::Machines;
      under_way_ = Stage::Local;
      // A machine of one rank rests meanwhile: exchanges are numbered alike on all ranks.
      if (has_local_peers()) {
        is_whole_ ? local_.describe_whole(spec) : local_.describe_reduction(spec);
      }
      spec.last = false;
      return true;
    }
    if (stage_ == Stage::Machines) {
      stage_ = Stage::Copies;
      under_way_ = Stage::Machines;
      describe_machines(spec);
      spec.last = !uses_scratch_ && (is_whole_ || !has_local_peers());
      return true;
    }
    if (stage_ == Stage::Copies) {
      stage_ = Stage::Done;
      combine_scratch();
      if (has_local_peers() && !is_whole_) {
        under_way_ = Stage::Copies;
        local_.describe_copies(spec);
        return true;
      }
    }
    return false;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    if (check_ != nullptr) {
      check_->receive(offset, bytes, pieces[0]);
    } else if (under_way_ != Stage::Machines) {
      local_.receive(offset, bytes, pieces);
    } else if (uses_scratch_) {
      keep(offset, bytes, pieces[0]);
    } else {
      combine(offset, bytes, pieces);
    }
  }

 private:
  enum class Stage : std::uint8_t { Local, Machines, Copies, Done };

  [[nodiscard]] bool has_local_peers() const noexcept { return !local_.group().peers.empty(); }
  [[nodiscard]] std::byte* out() const noexcept { return static_cast<std::byte*>(output_.data); }
  /// y_m, as far as this rank owns it: a rank alone on its machine has it in its input.
  [[nodiscard]] const std::byte* mean() const noexcept {
    return has_local_peers() ? out() : static_cast<const std::byte*>(input_.data);
  }

  /// Neighbouring machines divide the buffer as this one does.
  [[nodiscard]] static bool divides_alike(const MachineLayout& layout, const NeighborPlan& plan) {
    const auto has_as_many = [&, own = layout.ranks_of(plan.rank).size()](const auto& machine) {
      return layout.ranks_of(machine.rank).size() == own;
    };
    return std::ranges::all_of(plan.sources, has_as_many) &&
           std::ranges::all_of(plan.destinations, has_as_many);
  }

  /// Routes one message to all readers, combined as it arrives.
  void route_whole_shard(const NeighborPlan& twins) {
    readers_ = twins.destinations;
    for (const WeightedRank& source : twins.sources) {
      incoming_.push_back({.source = source, .bytes = end_ - begin_});
    }
    outgoing_.push_back({.data = mean() + begin_, .bytes = end_ - begin_, .readers = readers_});
  }

  /// Routes parts of the shard to their owners elsewhere; what comes is kept until all is here.
  void route_overlaps(const MachineLayout& layout, const NeighborPlan& plan) {
    const auto parts = overlaps(layout, plan.destinations, output_.bytes(), begin_, end_);
    sources_ = overlaps(layout, plan.sources, output_.bytes(), begin_, end_);
    for (const Overlap& overlap : parts) {
      readers_.push_back(overlap.rank);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      outgoing_.push_back({.data = mean() + parts[i].begin,
                           .bytes = parts[i].end - parts[i].begin,
                           .readers = {&readers_[i], 1}});
    }
    for (const Overlap& overlap : sources_) {
      incoming_.push_back({.source = overlap.rank, .bytes = overlap.end - overlap.begin});
    }
    scratch_.resize(plan.sources.size() * (end_ - begin_));
    weights_.assign(plan.sources.size(), 0.0);
  }

  void describe_machines(ExchangeSpec& spec) {
    spec.outgoing = outgoing_;
    spec.incoming = incoming_;
    spec.device = output_.device.kind;
    if (uses_scratch_) {
      spec.pace = Pace::Each;
    } else {
      spec.bytes = end_ - begin_;
      spec.overwrites_payload = mean() == out();
    }
  }

  void keep(std::size_t offset, std::size_t bytes, const Piece& piece) {
    const Overlap& overlap = sources_[piece.source_index];
    std::byte* const to =
        scratch_.data() + overlap.machine * (end_ - begin_) + (overlap.begin - begin_);
    copy_bytes(to + offset, piece.data, bytes);
    weights_[overlap.machine] = piece.weight;
  }

  void combine(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
    list_row(operands_, own_place_, {.data = mean() + begin_ + offset, .weight = self_weight_},
             pieces);
    sums_->weighted_sum(output_.dtype, out() + begin_ + offset, operands_, bytes);
  }

  void combine_scratch() {
    if (!uses_scratch_) {
      return;
    }
    std::vector<Piece> pieces(weights_.size());
    for (std::size_t m = 0; m < weights_.size(); ++m) {
      pieces[m] = {.data = scratch_.data() + m * (end_ - begin_), .weight = weights_[m]};
    }
    list_row(operands_, own_place_, {.data = mean() + begin_, .weight = self_weight_}, pieces);
    weighted_sum(output_.dtype, out() + begin_, operands_, end_ - begin_);
  }

  ConstBufferView input_;
  BufferView output_;
  double self_weight_;
  /// This machine's place among those that it hears, and itself.
  std::size_t own_place_;
  CallName name_;
  Envelope envelope_;
  ArithmeticHandle sums_;
  ShardedReduction local_;
  bool is_whole_;
  /// The part that this rank exchanges with other machines, in bytes.
  std::size_t begin_;
  std::size_t end_;
  bool uses_scratch_;
  std::unique_ptr<PlanExchange> check_{};
  Stage stage_ = Stage::Local;
  Stage under_way_ = Stage::Local;
  std::vector<Overlap> sources_;
  std::vector<std::byte> scratch_;
  std::vector<double> weights_;
  std::vector<WeightedRank> readers_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<Operand> operands_;
};

void check_arguments(const Context& context, const ConstBufferView& input, const BufferView& output,
                     const NeighborPlan* plan) {
  check_in_and_out(context, OpKind::HierarchicalNeighborAllreduce, input, output,
                   Residence::Anywhere);
  const MachineLayout& machines = context.machines();
  check_plan_of(context, OpKind::HierarchicalNeighborAllreduce, plan, "machine",
                machines.machine_of(context.rank()), machines.machine_count());
}

/// Machines of different sizes divide the buffer differently: what overlaps is kept on the host.
Placement place(Context& context, ConstBufferView& input, BufferView& output) {
  const MachineLayout& machines = context.machines();
  bool are_alike = true;
  for (int machine = 0; machine < machines.machine_count(); ++machine) {
    are_alike = are_alike && machines.ranks_of(machine).size() == machines.ranks_of(0).size();
  }
  return Placement::of(context, OpKind::HierarchicalNeighborAllreduce, input, output, {},
                       {.way = are_alike ? DeviceWay::Nccl : DeviceWay::Host});
}

}  // namespace

Work hierarchical_neighbor_allreduce_nonblocking(
    Context& context, ConstBufferView input, BufferView output,
    const std::shared_ptr<const NeighborPlan>& machine_plan, const HierarchicalOptions& options) {
  validate(context, [&] { check_arguments(context, input, output, machine_plan.get()); });
  const Placement placement = place(context, input, output);
  return submit_call<HierarchicalNeighborAllreduce>(context, placement, context, std::move(input),
                                                    std::move(output), *machine_plan, options);
}

Work hierarchical_neighbor_allreduce_nonblocking(
    Context& context, BufferView buffer, const std::shared_ptr<const NeighborPlan>& machine_plan,
    const HierarchicalOptions& options) {
  ConstBufferView input = buffer;
  return hierarchical_neighbor_allreduce_nonblocking(context, std::move(input), std::move(buffer),
                                                     machine_plan, options);
}

void hierarchical_neighbor_allreduce(Context& context, ConstBufferView input, BufferView output,
                                     const std::shared_ptr<const NeighborPlan>& machine_plan,
                                     const HierarchicalOptions& options) {
  validate(context, [&] { check_arguments(context, input, output, machine_plan.get()); });
  const Placement placement = place(context, input, output);
  run_call<HierarchicalNeighborAllreduce>(context, placement, context, std::move(input),
                                          std::move(output), *machine_plan, options);
}

void hierarchical_neighbor_allreduce(Context& context, BufferView buffer,
                                     const std::shared_ptr<const NeighborPlan>& machine_plan,
                                     const HierarchicalOptions& options) {
  ConstBufferView input = buffer;
  hierarchical_neighbor_allreduce(context, std::move(input), std::move(buffer), machine_plan,
                                  options);
}

}  // namespace bluefog::ops
