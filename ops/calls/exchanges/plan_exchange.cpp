#include "ops/calls/exchanges/plan_exchange.hpp"

#include <fmt/format.h>

#include <bit>
#include <boost/container_hash/hash.hpp>
#include <cstring>

#include "bluefog_cpp/error.hpp"
#include "topology/mixing/plan_agreement.hpp"

namespace bluefog::ops {
namespace {

/// Equal for equal weights from and to equal machines, in equal order.
std::uint64_t digest(const NeighborPlan& plan) {
  std::size_t seed = 0;
  const auto add = [&](int machine, double weight) {
    boost::hash_combine(seed, machine);
    boost::hash_combine(seed, std::bit_cast<std::uint64_t>(weight));
  };
  add(-1, plan.self_weight);
  for (const auto* side : {&plan.sources, &plan.destinations}) {
    boost::hash_combine(seed, side->size());
    for (const WeightedRank& machine : *side) {
      add(machine.rank, machine.weight);
    }
  }
  return seed;
}

}  // namespace

PlanExchange::PlanExchange(const Context& context, const NeighborPlan& plan, const Envelope& call,
                           const MachineLayout* machines, const Digests& digests)
    : group_(Group::everyone(context)),
      call_(call),
      machines_(machines),
      bitmap_bytes_(edge_bitmap_bytes(context.size())),
      bytes_per_rank_(bitmap_bytes_ + sizeof digests),
      words_(bytes_per_rank_ * group_.size()) {
  write_edge_bitmaps(plan, {words_of(context.rank()), bitmap_bytes_});
  std::memcpy(words_of(context.rank()) + bitmap_bytes_, &digests, sizeof digests);
}

PlanExchange::PlanExchange(const Context& context, const NeighborPlan& plan, const Envelope& call)
    : PlanExchange(context, plan, call, nullptr, {.graph = plan.graph}) {}

PlanExchange::PlanExchange(const Context& context, const NeighborPlan& twins,
                           const NeighborPlan& machine_plan, const Envelope& call)
    : PlanExchange(context, twins, call, &context.machines(),
                   {.graph = machine_plan.graph, .weights = digest(machine_plan)}) {}

bool PlanExchange::describe(ExchangeSpec& spec) {
  if (described_) {
    check_edges();
    check_graphs();
    check_weights();
    return false;
  }
  described_ = true;
  outgoing_ = {.data = words_of(group_.ranks[group_.own]),
               .bytes = bytes_per_rank_,
               .readers = group_.others()};
  for (const WeightedRank& peer : group_.peers) {
    incoming_.push_back({.source = peer, .bytes = bytes_per_rank_});
  }
  spec.envelope = call_;
  spec.envelope.kind = OpKind::TopologyCheck;
  spec.outgoing = {&outgoing_, 1};
  spec.incoming = incoming_;
  spec.pace = Pace::Each;
  spec.keeps_buffers = true;
  spec.last = false;
  return true;
}

void PlanExchange::receive(std::size_t offset, std::size_t bytes, const Piece& piece) {
  const int source = group_.peers[piece.source_index].rank;
  std::memcpy(words_of(source) + offset, piece.data, bytes);
}

StepLinks PlanExchange::links_of(int rank) const {
  const std::span all(words_);
  return links_in(all.subspan(bytes_per_rank_ * static_cast<std::size_t>(rank), bitmap_bytes_));
}

void PlanExchange::check_edges() const {
  std::vector<std::byte> bitmaps;
  bitmaps.reserve(bitmap_bytes_ * group_.size());
  for (auto words = words_.begin(); words != words_.end();
       words += static_cast<std::ptrdiff_t>(bytes_per_rank_)) {
    bitmaps.insert(bitmaps.end(), words, words + static_cast<std::ptrdiff_t>(bitmap_bytes_));
  }
  check_bitmaps_agree(static_cast<int>(group_.size()), bitmaps, call_text());
}

// Ranks without a graph make steps of their own, which edges alone describe.
void PlanExchange::check_graphs() const {
  int known = -1;
  for (const int rank : group_.ranks) {
    const std::uint64_t graph = digests_of(rank).graph;
    if (graph == 0) {
      continue;
    }
    if (known < 0) {
      known = rank;
    } else if (graph != digests_of(known).graph) {
      throw MismatchError(fmt::format(
          "{}: expected the same topology on all ranks, found that ranks {} and {} were given "
          "different ones, whose senders and receivers agree and whose weights do not",
          call_text(), known, rank));
    }
  }
}

// Each rank combines its shard of the buffer with its own weights.
void PlanExchange::check_weights() const {
  if (machines_ == nullptr) {
    return;
  }
  for (int machine = 0; machine < machines_->machine_count(); ++machine) {
    const auto& ranks = machines_->ranks_of(machine);
    for (const int rank : ranks) {
      if (digests_of(rank).weights != digests_of(ranks.front()).weights) {
        throw MismatchError(
            fmt::format("{}: expected the same weights on all ranks of a machine, found that ranks "
                        "{} and {} of machine {} use different ones",
                        call_text(), ranks.front(), rank, machine));
      }
    }
  }
}

std::string PlanExchange::call_text() const {
  return fmt::format("rank {}, {}", group_.ranks[group_.own], call_.describe());
}

std::byte* PlanExchange::words_of(int rank) noexcept {
  return words_.data() + bytes_per_rank_ * static_cast<std::size_t>(rank);
}

PlanExchange::Digests PlanExchange::digests_of(int rank) const noexcept {
  Digests digests;
  std::memcpy(&digests,
              words_.data() + bytes_per_rank_ * static_cast<std::size_t>(rank) + bitmap_bytes_,
              sizeof digests);
  return digests;
}

}  // namespace bluefog::ops
