#include "topology/graphs/matching_source.hpp"

#include <utility>

namespace bluefog::topology::detail {

MatchingSource::MatchingSource(int size, std::int64_t period, double peer_weight, Draw draw)
    : size_(size), period_(period), peer_weight_(peer_weight), draw_(std::move(draw)) {}

MatchingSource::Peers MatchingSource::peers_in(std::int64_t phase) const {
  const std::lock_guard lock(mutex_);
  if (phase != kept_phase_) {
    kept_ = std::make_shared<const std::vector<int>>(draw_(phase));
    kept_phase_ = phase;
  }
  return kept_;
}

MixingMatrix MatchingSource::mixing_matrix(std::int64_t phase) const {
  const Peers peers = peers_in(phase);
  std::vector<std::vector<WeightedRank>> rows(size_);
  for (int rank = 0; rank < size_; ++rank) {
    const int peer = (*peers)[rank];
    if (peer == rank) {
      rows[rank] = {{rank, 1.0}};
    } else {
      rows[rank] = {{rank, 1.0 - peer_weight_}, {peer, peer_weight_}};
    }
  }
  return MixingMatrix::from_rows(std::move(rows));
}

NeighborPlan MatchingSource::plan_for(int rank, std::int64_t phase) const {
  NeighborPlan plan = NeighborPlan::alone(rank, size_);
  const int peer = (*peers_in(phase))[rank];
  if (peer != rank) {
    plan.self_weight = 1.0 - peer_weight_;
    plan.sources = {{peer, peer_weight_}};
    plan.destinations = {{peer, 1.0}};
  }
  return plan;
}

}  // namespace bluefog::topology::detail
