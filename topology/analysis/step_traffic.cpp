#include "topology/step_traffic.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace bluefog::topology::detail {

StepTraffic traffic_of(const MixingMatrix& matrix) {
  // One rank of a pattern stands for all ranks.
  const int looked_at = matrix.pattern() ? 1 : matrix.size();
  const int stands_for = matrix.size() / looked_at;
  StepTraffic traffic;
  for (int rank = 0; rank < looked_at; ++rank) {
    const NeighborPlan plan = matrix.plan_for(rank);
    const auto heard = static_cast<int>(plan.sources.size());
    const auto sent = static_cast<int>(plan.destinations.size());
    traffic.messages += std::int64_t{sent} * stands_for;
    traffic.max_in_degree = std::max(traffic.max_in_degree, heard);
    traffic.max_out_degree = std::max(traffic.max_out_degree, sent);
    traffic.has_negative_weight |=
        plan.self_weight < 0.0 || std::ranges::any_of(plan.sources, [](const WeightedRank& source) {
          return source.weight < 0.0;
        });
  }
  return traffic;
}

std::int64_t messages_between_machines(const MixingMatrix& matrix, const MachineLayout& layout) {
  std::int64_t count = 0;
  for (int rank = 0; rank < matrix.size(); ++rank) {
    for (const WeightedRank& entry : matrix.row(rank)) {
      if (!layout.same_machine(rank, entry.rank)) {
        ++count;
      }
    }
  }
  return count;
}

std::int64_t count_edge_mismatches(const Schedule& schedule, std::int64_t step) {
  using Edge = std::pair<int, int>;  // sender, receiver
  std::vector<Edge> sent;
  std::vector<Edge> heard;
  for (int rank = 0; rank < schedule.size(); ++rank) {
    const std::shared_ptr<const NeighborPlan> plan = schedule.plan_for(rank, step);
    for (const WeightedRank& entry : plan->destinations) {
      sent.emplace_back(rank, entry.rank);
    }
    for (const WeightedRank& entry : plan->sources) {
      heard.emplace_back(entry.rank, rank);
    }
  }
  std::ranges::sort(sent);
  std::ranges::sort(heard);
  std::vector<Edge> one_sided;
  std::ranges::set_symmetric_difference(sent, heard, std::back_inserter(one_sided));
  return std::ssize(one_sided);
}

}  // namespace bluefog::topology::detail
