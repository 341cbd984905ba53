#include "topology/one_to_one.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/graphs/matching_source.hpp"
#include "topology/graphs/seeded_draws.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::topology {
namespace {

void require(bool holds, std::string_view schedule, std::string_view what, std::int64_t found,
             std::string_view expected) {
  if (!holds) {
    throw InvalidArgument(
        fmt::format("{} schedule: {} is {}, expected {}", schedule, what, found, expected));
  }
}

/// The rank that `rank` sends to, a permutation in each step. A rank that is sent to itself rests.
using Receiver = std::function<int(int rank, std::int64_t phase)>;

class OneToOneSource final : public Schedule::Source {
 public:
  /// @param sender the inverse of `receiver`.
  OneToOneSource(int size, std::int64_t period, Receiver receiver, Receiver sender)
      : size_(size), period_(period), receiver_(std::move(receiver)), sender_(std::move(sender)) {}

  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::int64_t period_steps() const override { return period_; }

  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override {
    std::vector<std::vector<WeightedRank>> rows(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) {
      const int reader = receiver_(rank, phase);
      auto& row = rows[static_cast<std::size_t>(reader)];
      if (reader == rank) {
        row = {{.rank = rank, .weight = 1.0}};
      } else {
        row = {{.rank = reader, .weight = 0.5}, {.rank = rank, .weight = 0.5}};
      }
    }
    return MixingMatrix::from_rows(std::move(rows));
  }

  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override {
    NeighborPlan plan = NeighborPlan::alone(rank, size_);
    const int reader = receiver_(rank, phase);
    if (reader != rank) {
      plan.self_weight = 0.5;
      plan.sources = {{.rank = sender_(rank, phase), .weight = 0.5}};
      plan.destinations = {{.rank = reader, .weight = 1.0}};
    }
    return plan;
  }

 private:
  int size_;
  std::int64_t period_;
  Receiver receiver_;
  Receiver sender_;
};

Schedule one_to_one(int size, std::int64_t period, Receiver receiver, Receiver sender) {
  return Schedule(
      std::make_unique<OneToOneSource>(size, period, std::move(receiver), std::move(sender)));
}

/// ⌈log₂ n⌉ for n ≥ 1.
int log2_above(int n) { return std::bit_width(static_cast<unsigned>(n) - 1); }

int wrapped(std::int64_t value, int size) {
  return static_cast<int>(((value % size) + size) % size);
}

/// Fisher–Yates.
std::vector<int> shuffled(int size, std::uint64_t seed, std::int64_t phase) {
  std::vector<int> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 generator = detail::generator_of(seed, phase);
  for (int i = size; i > 1; --i) {
    std::swap(order[i - 1], order[detail::draw_below(generator, i)]);
  }
  return order;
}

/// Neighbours in the shuffled order are a pair; the last of an odd number is its own.
std::vector<int> drawn_pairs(int size, std::uint64_t seed, std::int64_t phase) {
  const std::vector<int> order = shuffled(size, seed, phase);
  std::vector<int> pairs(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t other = (i ^ 1U) < order.size() ? i ^ 1U : i;
    pairs[static_cast<std::size_t>(order[i])] = order[other];
  }
  return pairs;
}

/// A step of an inner–outer schedule: who leaves the machine, and how far the others reach.
struct InnerOuter {
  int machines = 1;
  int local_size = 1;

  [[nodiscard]] int size() const { return machines * local_size; }
  [[nodiscard]] int rank_of(int machine, int local) const { return machine * local_size + local; }

  /// `local` + `distance` among the local ranks without `outgoing`, going round in `direction`.
  [[nodiscard]] int stay_inside(int local, int outgoing, int distance, int direction) const {
    const int to_outgoing = wrapped(direction * (outgoing - local), local_size);
    const int reach = distance >= to_outgoing ? distance + 1 : distance;
    return wrapped(local + direction * reach, local_size);
  }

  /// Peer of `rank` in a step: the rank that it sends to (direction 1) or hears (direction −1).
  [[nodiscard]] int peer(int rank, std::int64_t phase, int outer, int inner, int direction) const {
    const int machine = rank / local_size;
    const int local = rank % local_size;
    const int outgoing = static_cast<int>(phase % local_size);
    if (local == outgoing) {
      return rank_of(wrapped(machine + direction * outer, machines), local);
    }
    return rank_of(machine, stay_inside(local, outgoing, inner, direction));
  }
};

/// τ for distances 1, 2, 4, … below `ranks`, at least 1.
int count_of_powers(int ranks) { return std::max(1, log2_above(ranks)); }

}  // namespace

Schedule one_peer_hypercube(int size) {
  require(size >= 1 && std::has_single_bit(static_cast<unsigned>(size)), "one-peer hypercube",
          "size", size, "a power of two");
  const auto peer = [](int rank, std::int64_t phase) {
    return static_cast<int>(static_cast<unsigned>(rank) ^ (1U << static_cast<unsigned>(phase)));
  };
  if (size == 1) {
    return static_schedule(MixingMatrix::identity(1));
  }
  return one_to_one(size, log2_above(size), peer, peer);
}

Schedule random_matching(int size, std::uint64_t seed, std::int64_t steps) {
  require(size >= 1, "random matching", "size", size, "at least 1");
  require(steps >= 1, "random matching", "steps", steps, "at least 1");
  return Schedule(std::make_unique<detail::MatchingSource>(
      size, steps, 0.5, [=](std::int64_t phase) { return drawn_pairs(size, seed, phase); }));
}

Schedule inner_outer_ring(int machines, int local_size) {
  require(machines >= 1, "inner-outer ring", "the number of machines", machines, "at least 1");
  require(local_size >= 3, "inner-outer ring", "local_size", local_size, "at least 3");
  const InnerOuter places{.machines = machines, .local_size = local_size};
  const auto peer = [places](int direction) {
    return [places, direction](int rank, std::int64_t phase) {
      return places.peer(rank, phase, 1, 1, direction);
    };
  };
  return one_to_one(places.size(), local_size, peer(1), peer(-1));
}

Schedule inner_outer_exponential(int machines, int local_size) {
  require(machines >= 2, "inner-outer exponential", "the number of machines", machines,
          "at least 2");
  require(local_size >= 3, "inner-outer exponential", "local_size", local_size, "at least 3");
  const InnerOuter places{.machines = machines, .local_size = local_size};
  // One rank fewer goes round inside, because one leaves the machine.
  const int outer_powers = count_of_powers(machines);
  const int inner_powers = count_of_powers(local_size - 1);
  const auto peer = [=](int direction) {
    return [=](int rank, std::int64_t phase) {
      const int outer = 1 << static_cast<int>(phase % outer_powers);
      const int inner = 1 << static_cast<int>(phase % inner_powers);
      return places.peer(rank, phase, outer, inner, direction);
    };
  };
  const std::int64_t period = std::lcm(
      std::lcm(std::int64_t{local_size}, std::int64_t{outer_powers}), std::int64_t{inner_powers});
  return one_to_one(places.size(), period, peer(1), peer(-1));
}

Schedule alternating_exponential(int machines, int local_size) {
  require(machines >= 1, "alternating exponential", "the number of machines", machines,
          "at least 1");
  require(local_size >= 1, "alternating exponential", "local_size", local_size, "at least 1");
  const int size = machines * local_size;
  std::vector<std::vector<WeightedRank>> inside(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    for (int local = 0; local < local_size; ++local) {
      inside[static_cast<std::size_t>(rank)].push_back(
          {.rank = rank / local_size * local_size + local, .weight = 1.0 / local_size});
    }
  }
  const MixingMatrix even = MixingMatrix::from_rows(std::move(inside));
  std::vector<MixingMatrix> steps;
  for (std::int64_t distance = 1; distance < machines; distance *= 2) {
    std::vector<std::vector<WeightedRank>> rows(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      rows[static_cast<std::size_t>(rank)] = {
          {.rank = rank, .weight = 0.5},
          {.rank = wrapped(rank - distance * local_size, size), .weight = 0.5}};
    }
    steps.push_back(even);
    steps.push_back(MixingMatrix::from_rows(std::move(rows)));
  }
  return steps.empty() ? static_schedule(even) : cycle(std::move(steps));
}

Schedule machine_exponential(int size, int local_size) {
  constexpr std::string_view kName = "machine exponential";
  require(local_size >= 1, kName, "local_size", local_size, "at least 1");
  require(size >= 1 && size % local_size == 0, kName, "size", size,
          fmt::format("a multiple of local_size, {}", local_size));
  return one_peer_exponential(size / local_size);
}

}  // namespace bluefog::topology
