#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "topology/schedule.hpp"

namespace bluefog::topology::detail {

/// Pairs of ranks, drawn anew in each step: both of a pair give the other's value the same weight.
class MatchingSource final : public Schedule::Source {
 public:
  /// The peer of every rank in a step; its own number where it rests.
  using Draw = std::function<std::vector<int>(std::int64_t phase)>;

  MatchingSource(int size, std::int64_t period, double peer_weight, Draw draw);

  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::int64_t period_steps() const override { return period_; }
  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override;
  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override;

 private:
  using Peers = std::shared_ptr<const std::vector<int>>;

  /// The draw of a step costs O(n): the last one is kept for the plans of the other ranks.
  [[nodiscard]] Peers peers_in(std::int64_t phase) const;

  int size_;
  std::int64_t period_;
  double peer_weight_;
  Draw draw_;
  mutable std::mutex mutex_;
  mutable std::int64_t kept_phase_ = -1;
  mutable Peers kept_;
};

}  // namespace bluefog::topology::detail
