#include "pipeline/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {
namespace {

/// Sums of costs in another order differ by roundings, which decide nothing.
constexpr double kCostRounding = 1e-9;
/// Measured costs of equal layers differ by more than a small slack, which leaves the last stage
/// what the first ones could not take.
constexpr int kMostSlacks = 6;

double counted(std::span<const double> costs, int layer, int frozen, double frozen_share) {
  return costs[static_cast<std::size_t>(layer)] * (layer < frozen ? frozen_share : 1.0);
}

void check(std::span<const double> costs, const PartitionOptions& options) {
  const int layers = static_cast<int>(costs.size());
  for (int layer = 0; layer < layers; ++layer) {
    if (!(costs[static_cast<std::size_t>(layer)] >= 0)) {
      throw InvalidArgument(
          fmt::format("partition: expected a cost of 0 or more, found {} of layer {}",
                      costs[static_cast<std::size_t>(layer)], layer));
    }
  }
  if (options.frozen < 0 || options.frozen > layers) {
    throw InvalidArgument(
        fmt::format("partition: expected 0 to {} frozen layers, found {}", layers, options.frozen));
  }
  if (!(options.slack >= 0)) {
    throw InvalidArgument(
        fmt::format("partition: expected a slack of 0 or more, found {}", options.slack));
  }
  if (!(options.frozen_share > 0 && options.frozen_share <= 1)) {
    throw InvalidArgument(
        fmt::format("partition: expected frozen layers to count a share above 0, up to 1, found {}",
                    options.frozen_share));
  }
  for (const SkipConnection& skip : options.skips) {
    if (skip.from < 0 || skip.to <= skip.from || skip.to >= layers) {
      throw InvalidArgument(
          fmt::format("partition: expected a skip connection to a later one of {} layers, found {} "
                      "to {}",
                      layers, skip.from, skip.to));
    }
  }
}

/// Layers that stay together: where each group begins, and its cost.
struct Groups {
  std::vector<int> begins;
  std::vector<double> costs;
};

Groups groups_of(std::span<const double> costs, const PartitionOptions& options) {
  Groups groups;
  double before = 0;  // a group begins only behind one that has a cost
  for (int layer = 0; layer < static_cast<int>(costs.size()); ++layer) {
    const double cost = counted(costs, layer, options.frozen, options.frozen_share);
    const bool is_tied = std::ranges::any_of(options.skips, [&](const SkipConnection& skip) {
      return skip.from < layer && layer <= skip.to;
    });
    if (layer == 0 || (!is_tied && cost > 0 && before > 0)) {
      groups.begins.push_back(layer);
      groups.costs.push_back(0);
    }
    groups.costs.back() += cost;
    before += cost;
  }
  return groups;
}

void check_stages(int stages, const Groups& groups, std::span<const double> costs) {
  if (std::ranges::none_of(costs, [](double cost) { return cost > 0; })) {
    throw InvalidArgument(
        fmt::format("partition: expected a layer that costs something, found {} layers of cost 0",
                    costs.size()));
  }
  const int most = static_cast<int>(groups.begins.size());
  if (stages < 1 || stages > most) {
    throw InvalidArgument(
        fmt::format("partition: expected 1 to {0} stages ({1} layers in {0} groups that skip "
                    "connections and layers of cost 0 keep together), found {2}",
                    most, costs.size(), stages));
  }
}

/// Where stages begin, and the cost of the costliest one.
struct Division {
  std::vector<int> begins;
  double largest = 0;
};

Division divided(const Groups& groups, int stages, double slack) {
  Division division;
  double left = std::reduce(groups.costs.begin(), groups.costs.end());
  std::size_t next = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const auto stages_left = static_cast<std::size_t>(stages - stage);
    const double most = left / static_cast<double>(stages_left) * (1 + slack + kCostRounding);
    division.begins.push_back(groups.begins[next]);
    double sum = groups.costs[next++];
    while (groups.costs.size() - next > stages_left - 1 &&
           (stages_left == 1 || sum + groups.costs[next] <= most)) {
      sum += groups.costs[next++];
    }
    left -= sum;
    division.largest = std::max(division.largest, sum);
  }
  return division;
}

}  // namespace

Partition::Partition(std::vector<int> begins, int layers)
    : begins_(std::move(begins)), layers_(layers) {
  bool rises = !begins_.empty() && begins_.front() == 0 && begins_.back() < layers;
  for (std::size_t s = 1; s < begins_.size(); ++s) {
    rises = rises && begins_[s - 1] < begins_[s];
  }
  if (!rises) {
    throw InvalidArgument(fmt::format(
        "partition: expected first layers of stages that rise from 0 and end below {}, found [{}]",
        layers, fmt::join(begins_, ", ")));
  }
}

int Partition::begin(int stage) const {
  if (stage < 0 || stage >= stages()) {
    throw InvalidArgument(
        fmt::format("partition: expected a stage from 0 to {}, found {}", stages() - 1, stage));
  }
  return begins_[static_cast<std::size_t>(stage)];
}

int Partition::end(int stage) const {
  const bool is_last = stage == stages() - 1;
  return is_last ? layers_ : begin(stage + 1);
}

int Partition::stage_of(int layer) const {
  if (layer < 0 || layer >= layers_) {
    throw InvalidArgument(
        fmt::format("partition: expected a layer from 0 to {}, found {}", layers_ - 1, layer));
  }
  return static_cast<int>(std::ranges::upper_bound(begins_, layer) - begins_.begin()) - 1;
}

Partition partition_layers(std::span<const double> costs, const PartitionOptions& options) {
  check(costs, options);
  const Groups groups = groups_of(costs, options);
  check_stages(options.stages, groups, costs);
  Division best = divided(groups, options.stages, options.slack);
  for (int times = 2; times <= kMostSlacks; ++times) {
    Division other = divided(groups, options.stages, options.slack * times);
    if (other.largest * (1 + kCostRounding) < best.largest) {
      best = std::move(other);
    }
  }
  return {std::move(best.begins), static_cast<int>(costs.size())};
}

double largest_stage(std::span<const double> costs, int frozen, const Partition& partition,
                     double frozen_share) {
  if (costs.size() != static_cast<std::size_t>(partition.layers())) {
    throw InvalidArgument(fmt::format("partition: expected the costs of {} layers, found {}",
                                      partition.layers(), costs.size()));
  }
  double largest = 0;
  for (int stage = 0; stage < partition.stages(); ++stage) {
    double sum = 0;
    for (int layer = partition.begin(stage); layer < partition.end(stage); ++layer) {
      sum += counted(costs, layer, frozen, frozen_share);
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

int fewest_stages(std::span<const double> costs, const PartitionOptions& options, double limit) {
  PartitionOptions halved = options;
  static_cast<void>(partition_layers(costs, options));  // checks them
  int stages = options.stages;
  for (; stages % 2 == 0; stages /= 2) {
    halved.stages = stages / 2;
    const Partition fewer = partition_layers(costs, halved);
    if (largest_stage(costs, options.frozen, fewer, options.frozen_share) >
        limit * (1 + kCostRounding)) {
      break;
    }
  }
  return stages;
}

int initial_micro_batches(int stages) {
  if (stages < 1) {
    throw InvalidArgument(
        fmt::format("micro-batches: expected at least 1 stage, found {}", stages));
  }
  constexpr int kInAll = 16;
  return stages == 1 ? 1 : std::max(kInAll, 2 * stages);
}

std::vector<std::int64_t> micro_batch_rows(std::int64_t rows, int wanted) {
  if (rows < 0 || wanted < 1) {
    throw InvalidArgument(fmt::format(
        "micro-batches: expected 0 rows or more in at least 1 of them, found {} rows in {}", rows,
        wanted));
  }
  const std::int64_t count = std::min<std::int64_t>(rows, wanted);
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < count; ++i) {
    sizes.push_back(rows / count + (i < rows % count ? 1 : 0));
  }
  return sizes;
}

}  // namespace bluefog::pipeline
