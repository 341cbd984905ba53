#include "topology/neighbor_plan.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

void validate_list(const NeighborPlan& plan, const std::vector<WeightedRank>& list,
                   std::string_view name) {
  int previous = -1;
  for (const WeightedRank& entry : list) {
    if (entry.rank < 0 || entry.rank >= plan.size) {
      throw InvalidArgument(
          fmt::format("neighbor plan of rank {}: {} names rank {}, expected 0 to {}", plan.rank,
                      name, entry.rank, plan.size - 1));
    }
    if (entry.rank == plan.rank) {
      throw InvalidArgument(
          fmt::format("neighbor plan of rank {}: {} names the rank itself, expected its share in "
                      "self_weight",
                      plan.rank, name));
    }
    if (entry.rank == previous) {
      throw InvalidArgument(fmt::format("neighbor plan of rank {}: {} names rank {} twice",
                                        plan.rank, name, entry.rank));
    }
    if (entry.rank < previous) {
      throw InvalidArgument(
          fmt::format("neighbor plan of rank {}: {} has rank {} after {}, expected rising ranks",
                      plan.rank, name, entry.rank, previous));
    }
    if (!std::isfinite(entry.weight)) {
      throw InvalidArgument(
          fmt::format("neighbor plan of rank {}: {} gives rank {} the weight {}, expected a finite "
                      "one",
                      plan.rank, name, entry.rank, entry.weight));
    }
    previous = entry.rank;
  }
}

}  // namespace

NeighborPlan NeighborPlan::alone(int rank, int size) {
  return {.rank = rank, .size = size, .self_weight = 1.0, .sources = {}, .destinations = {}};
}

void NeighborPlan::validate() const {
  if (size < 1) {
    throw InvalidArgument(fmt::format("neighbor plan: size is {}, expected at least 1", size));
  }
  if (rank < 0 || rank >= size) {
    throw InvalidArgument(
        fmt::format("neighbor plan: rank is {}, expected 0 to {}", rank, size - 1));
  }
  if (!std::isfinite(self_weight)) {
    throw InvalidArgument(fmt::format(
        "neighbor plan of rank {}: self_weight is {}, expected a finite one", rank, self_weight));
  }
  validate_list(*this, sources, "sources");
  validate_list(*this, destinations, "destinations");
}

}  // namespace bluefog
