#include "ops/plan_exchange.hpp"

#include <fmt/format.h>

#include <cstring>

#include "topology/plan_agreement.hpp"

namespace bluefog::ops {

PlanExchange::PlanExchange(const Context& context, const NeighborPlan& plan, const Envelope& call)
    : group_(Group::everyone(context)),
      call_(call),
      bytes_per_rank_(edge_bitmap_bytes(context.size())),
      bitmaps_(bytes_per_rank_ * group_.size()) {
  write_edge_bitmaps(plan, {bitmap_of(context.rank()), bytes_per_rank_});
}

bool PlanExchange::describe(ExchangeSpec& spec) {
  if (described_) {
    check_bitmaps_agree(static_cast<int>(group_.size()), bitmaps_,
                        fmt::format("rank {}, {}", group_.ranks[group_.own], call_.describe()));
    return false;
  }
  described_ = true;
  outgoing_ = {.data = bitmap_of(group_.ranks[group_.own]),
               .bytes = bytes_per_rank_,
               .readers = group_.peers};
  for (const WeightedRank& peer : group_.peers) {
    incoming_.push_back({.source = peer, .bytes = bytes_per_rank_});
  }
  spec.envelope = call_;
  spec.envelope.kind = OpKind::TopologyCheck;
  spec.outgoing = {&outgoing_, 1};
  spec.incoming = incoming_;
  spec.pace = Pace::Each;
  spec.last = false;
  return true;
}

void PlanExchange::receive(std::size_t offset, std::size_t bytes, const Piece& piece) {
  const int source = group_.peers[piece.source_index].rank;
  std::memcpy(bitmap_of(source) + offset, piece.data, bytes);
}

std::byte* PlanExchange::bitmap_of(int rank) noexcept {
  return bitmaps_.data() + bytes_per_rank_ * static_cast<std::size_t>(rank);
}

}  // namespace bluefog::ops
