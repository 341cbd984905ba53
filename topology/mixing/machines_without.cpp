#include "topology/machines_without.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/mixing/derived_schedule.hpp"
#include "topology/mixing/rank_list.hpp"
#include "topology/mixing/stochastic_complement.hpp"

namespace bluefog::topology {
namespace {

std::vector<int> lost_of_machines(int machines, const MachineLayout& layout,
                                  std::span<const int> ranks) {
  constexpr std::string_view kCall = "machines without ranks";
  if (machines != layout.machine_count()) {
    throw InvalidArgument(fmt::format("{}: expected a W of the layout's {} machines, found {}",
                                      kCall, layout.machine_count(), machines));
  }
  return lost_ranks(kCall, ranks, layout.size());
}

std::vector<int> sizes_of(const MachineLayout& layout) {
  std::vector<int> sizes;
  for (int machine = 0; machine < layout.machine_count(); ++machine) {
    sizes.push_back(static_cast<int>(layout.ranks_of(machine).size()));
  }
  return sizes;
}

/// The row of each machine, with `weight_of(entry)` in place of its weights.
template <typename RowOf, typename WeightOf>
MixingMatrix with_weights(int machines, RowOf row_of, WeightOf weight_of) {
  std::vector<std::vector<WeightedRank>> rows;
  for (int machine = 0; machine < machines; ++machine) {
    std::vector<WeightedRank>& row = rows.emplace_back(row_of(machine));
    for (WeightedRank& entry : row) {
      entry.weight = weight_of(entry);
    }
  }
  return MixingMatrix::from_rows(std::move(rows));
}

/// @param lost by rising rank.
MixingMatrix without_lost(const MixingMatrix& machines, const MachineLayout& layout,
                          const std::vector<int>& lost) {
  const std::vector<int> sizes = sizes_of(layout);
  StochasticComplement sums(with_weights(
                                machines.size(), [&](int machine) { return machines.row(machine); },
                                [&](const WeightedRank& entry) {
                                  return entry.weight / sizes[static_cast<std::size_t>(entry.rank)];
                                }),
                            sizes);
  for (const int rank : lost) {
    sums.remove(layout.machine_of(rank));
  }
  return with_weights(
      machines.size(),
      [&](int machine) {
        return sums.count_of(machine) > 0 ? sums.row(machine)
                                          : std::vector<WeightedRank>{{.rank = machine}};
      },
      [&](const WeightedRank& entry) {
        const int left = sums.count_of(entry.rank);
        return left > 0 ? entry.weight * left : entry.weight;
      });
}

}  // namespace

MixingMatrix machines_without(const MixingMatrix& machines, const MachineLayout& layout,
                              std::span<const int> ranks) {
  const std::vector<int> lost = lost_of_machines(machines.size(), layout, ranks);
  return lost.empty() ? machines : without_lost(machines, layout, lost);
}

Schedule machines_without(const Schedule& machines, const MachineLayout& layout,
                          std::span<const int> ranks) {
  std::vector<int> lost = lost_of_machines(machines.size(), layout, ranks);
  if (lost.empty()) {
    return machines;
  }
  return derived_schedule(machines, machines.size(),
                          [layout, lost = std::move(lost)](const MixingMatrix& step) {
                            return without_lost(step, layout, lost);
                          });
}

}  // namespace bluefog::topology
