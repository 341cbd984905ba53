#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/schedule.hpp"

namespace bluefog::topology {
namespace {

/// Each rank sends to one out-neighbour per step, clockwise; who receives
/// follows from that.
class OnePeerSource final : public Schedule::Source {
 public:
  explicit OnePeerSource(const MixingMatrix& graph)
      : clockwise_(graph.size()), in_neighbors_(graph.size()) {
    for (int rank = 0; rank < graph.size(); ++rank) {
      in_neighbors_[rank] = graph.in_neighbors(rank);
      std::vector<int>& order = clockwise_[rank] = graph.out_neighbors(rank);
      std::ranges::rotate(order, std::ranges::lower_bound(order, rank));
      extend_period(static_cast<std::int64_t>(order.size()));
    }
  }

  [[nodiscard]] int size() const override { return static_cast<int>(clockwise_.size()); }
  [[nodiscard]] std::int64_t period_steps() const override { return period_; }

  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override {
    std::vector<std::vector<WeightedRank>> rows(size());
    for (int rank = 0; rank < size(); ++rank) {
      const NeighborPlan plan = plan_for(rank, phase);
      rows[rank] = plan.sources;
      rows[rank].push_back({rank, plan.self_weight});
    }
    return MixingMatrix::from_rows(std::move(rows));
  }

  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override {
    NeighborPlan plan = NeighborPlan::alone(rank, size());
    if (!clockwise_[rank].empty()) {
      plan.destinations = {{peer_of(rank, phase), 1.0}};
    }
    for (const int sender : in_neighbors_[rank]) {
      if (peer_of(sender, phase) == rank) {
        plan.sources.push_back({sender, 0.0});
      }
    }
    plan.self_weight = 1.0 / static_cast<double>(1 + plan.sources.size());
    for (WeightedRank& source : plan.sources) {
      source.weight = plan.self_weight;
    }
    return plan;
  }

 private:
  [[nodiscard]] int peer_of(int rank, std::int64_t phase) const {
    const std::vector<int>& order = clockwise_[rank];
    return order[phase % static_cast<std::int64_t>(order.size())];
  }

  void extend_period(std::int64_t degree) {
    if (degree == 0) {
      return;
    }
    std::int64_t extended = 0;
    if (__builtin_mul_overflow(period_, degree / std::gcd(period_, degree), &extended)) {
      throw InvalidArgument(
          "one-peer schedule: the least common multiple of the out-degrees does not fit 64 bits");
    }
    period_ = extended;
  }

  std::vector<std::vector<int>> clockwise_;
  std::vector<std::vector<int>> in_neighbors_;
  std::int64_t period_ = 1;
};

}  // namespace

Schedule one_peer(const MixingMatrix& graph) {
  return Schedule(std::make_unique<OnePeerSource>(graph));
}

}  // namespace bluefog::topology
