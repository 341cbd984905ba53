#include "topology/base_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/graphs/hyper_hypercube.hpp"
#include "topology/graphs/simple_base.hpp"

namespace bluefog::topology {
namespace {

void require_at_least_one(int value, std::string_view what, std::string_view graph) {
  if (value >= 1) {
    return;
  }
  throw InvalidArgument(fmt::format("{} graph: {} is {}, expected at least 1", graph, what, value));
}

/// k, at most the number of other ranks, and at least 1.
int checked_peers(int size, int peers, std::string_view graph) {
  require_at_least_one(size, "size", graph);
  require_at_least_one(peers, "the number of peers", graph);
  return std::clamp(size - 1, 1, peers);
}

/// Blocks of simple base graphs, then hyper-hypercubes across the blocks.
class BaseGraphSource final : public Schedule::Source {
 public:
  BaseGraphSource(int blocks, int block_size, int peers)
      : size_(blocks * block_size),
        block_size_(block_size),
        inside_(block_size, peers),
        across_(blocks, peers + 1) {}

  [[nodiscard]] int rounds() const { return inside_.rounds() + across_.rounds(); }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::int64_t period_steps() const override { return std::max(rounds(), 1); }

  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override {
    std::vector<std::vector<WeightedRank>> rows(size_);
    for (int rank = 0; rank < size_; ++rank) {
      rows[rank] = row(rank, static_cast<int>(phase));
    }
    return MixingMatrix::from_rows(std::move(rows));
  }

  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override {
    NeighborPlan plan = NeighborPlan::alone(rank, size_);
    std::vector<WeightedRank> entries = row(rank, static_cast<int>(phase));
    std::ranges::sort(entries, {}, &WeightedRank::rank);
    for (const WeightedRank& entry : entries) {
      if (entry.rank == rank) {
        plan.self_weight = entry.weight;
        continue;
      }
      plan.sources.push_back(entry);
      plan.destinations.push_back({entry.rank, 1.0});  // W is symmetric
    }
    return plan;
  }

 private:
  [[nodiscard]] std::vector<WeightedRank> row(int rank, int phase) const {
    const int place = rank % block_size_;
    const int begin = rank - place;
    if (phase < inside_.rounds()) {
      std::vector<WeightedRank> entries = inside_.row(place, phase);
      for (WeightedRank& entry : entries) {
        entry.rank += begin;
      }
      return entries;
    }
    const std::vector<int> blocks = across_.members(rank / block_size_, phase - inside_.rounds());
    std::vector<WeightedRank> entries;
    for (const int block : blocks) {
      entries.push_back({block * block_size_ + place, 1.0 / static_cast<double>(blocks.size())});
    }
    return entries;
  }

  int size_;
  int block_size_;
  detail::SimpleBase inside_;
  detail::HyperHypercube across_;
};

/// The divisors of `size` that a hyper-hypercube can have, falling.
std::vector<int> smooth_divisors(int size, int largest) {
  std::vector<int> divisors;
  for (int divisor = size; divisor >= 1; --divisor) {
    if (size % divisor == 0 && detail::is_smooth(divisor, largest)) {
      divisors.push_back(divisor);
    }
  }
  return divisors;
}

Schedule smooth_schedule(int size, int peers) {
  const detail::HyperHypercube cube(size, peers + 1);
  std::vector<MixingMatrix> steps;
  for (int round = 0; round < std::max(cube.rounds(), 1); ++round) {
    steps.push_back(cube.mixing_matrix(round));
  }
  return cycle(std::move(steps));
}

}  // namespace

Schedule hyper_hypercube(int size, int peers) {
  constexpr std::string_view kName = "hyper-hypercube";
  const int used_peers = checked_peers(size, peers, kName);
  if (!detail::is_smooth(size, used_peers + 1)) {
    throw InvalidArgument(
        fmt::format("{} graph: size is {}, expected no prime factor above {} for {} peer(s)", kName,
                    size, used_peers + 1, used_peers));
  }
  return smooth_schedule(size, used_peers);
}

Schedule simple_base_graph(int size, int peers) {
  const int used_peers = checked_peers(size, peers, "simple base-(k+1)");
  if (detail::is_smooth(size, used_peers + 1)) {
    return smooth_schedule(size, used_peers);
  }
  return Schedule(std::make_unique<BaseGraphSource>(1, size, used_peers));
}

Schedule base_graph(int size, int peers) {
  const int used_peers = checked_peers(size, peers, "base-(k+1)");
  if (detail::is_smooth(size, used_peers + 1)) {
    return smooth_schedule(size, used_peers);
  }
  std::unique_ptr<BaseGraphSource> best;
  for (const int blocks : smooth_divisors(size, used_peers + 1)) {
    auto candidate = std::make_unique<BaseGraphSource>(blocks, size / blocks, used_peers);
    if (!best || candidate->rounds() < best->rounds()) {
      best = std::move(candidate);
    }
  }
  return Schedule(std::move(best));
}

}  // namespace bluefog::topology
