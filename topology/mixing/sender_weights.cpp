#include "topology/mixing/sender_weights.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace bluefog::topology {
namespace {

class SenderWeights final : public Schedule::Source {
 public:
  explicit SenderWeights(Schedule schedule) : schedule_(std::move(schedule)) {}

  [[nodiscard]] int size() const override { return schedule_.size(); }
  [[nodiscard]] std::int64_t period_steps() const override { return schedule_.period_steps(); }
  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override {
    return schedule_.mixing_matrix(phase);
  }
  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override {
    const MixingMatrix matrix = schedule_.mixing_matrix(phase);
    NeighborPlan plan = NeighborPlan::alone(rank, size());
    plan.self_weight = matrix.weight(rank, rank);
    for (const WeightedRank& entry : matrix.column(rank)) {
      if (entry.rank != rank) {
        plan.destinations.push_back(entry);
      }
    }
    for (const int source : matrix.in_neighbors(rank)) {
      plan.sources.push_back({.rank = source});
    }
    return plan;
  }

 private:
  Schedule schedule_;
};

}  // namespace

Schedule weighed_by_senders(Schedule schedule) {
  return Schedule(std::make_unique<SenderWeights>(std::move(schedule)));
}

}  // namespace bluefog::topology
