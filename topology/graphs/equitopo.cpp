#include "topology/equitopo.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/graphs/matching_source.hpp"
#include "topology/graphs/seeded_draws.hpp"

namespace bluefog::topology {
namespace {

void require_one_or_more(std::int64_t value, std::string_view what, std::string_view graph) {
  if (value >= 1) {
    return;
  }
  throw InvalidArgument(fmt::format("{}: {} is {}, expected at least 1", graph, what, value));
}

void require_fraction(double value, std::string_view what, std::string_view graph) {
  if (value > 0.0 && value <= 1.0) {
    return;
  }
  throw InvalidArgument(
      fmt::format("{}: {} is {}, expected above 0 and at most 1", graph, what, value));
}

/// M draws of u; none for one rank.
std::vector<int> drawn_shifts(int size, const EquiStaticOptions& options) {
  std::vector<int> shifts;
  if (size == 1) {
    return shifts;
  }
  const double wanted = std::ceil(std::log(size) / (options.rho * options.rho));
  if (!options.draws && wanted >= size - 1) {
    shifts.resize(size - 1);
    std::iota(shifts.begin(), shifts.end(), 1);
    return shifts;
  }
  std::mt19937_64 generator = detail::generator_of(options.seed, 0);
  const int draws = options.draws.value_or(static_cast<int>(wanted));
  for (int i = 0; i < draws; ++i) {
    shifts.push_back(1 + detail::draw_below(generator, size - 1));
  }
  return shifts;
}

enum class Direction { OneWay, BothWays };

MixingMatrix equistatic_of(int size, const EquiStaticOptions& options, Direction direction) {
  require_one_or_more(size, "size", "EquiStatic graph");
  require_one_or_more(options.draws.value_or(1), "the number of draws", "EquiStatic graph");
  require_fraction(options.rho, "rho", "EquiStatic graph");
  const std::vector<int> shifts = drawn_shifts(size, options);
  if (shifts.empty()) {
    return MixingMatrix::identity(size);
  }
  const double self = 1.0 / size;
  const double each = (1.0 - self) / static_cast<double>(shifts.size());
  std::vector<WeightedRank> entries{{0, self}};
  for (const int shift : shifts) {
    if (direction == Direction::OneWay) {
      entries.push_back({size - shift, each});
    } else {
      entries.push_back({size - shift, each / 2});
      entries.push_back({shift, each / 2});
    }
  }
  return MixingMatrix::from_pattern({.shape = {size}, .entries = std::move(entries)});
}

void check_dynamic(int size, const EquiDynOptions& options) {
  require_one_or_more(size, "size", "EquiDyn schedule");
  require_one_or_more(options.steps, "steps", "EquiDyn schedule");
  require_fraction(options.eta, "eta", "EquiDyn schedule");
}

/// The weight of a peer's value.
double peer_weight(int size, double eta) { return eta * (size - 1) / size; }

class EquiDynSource final : public Schedule::Source {
 public:
  EquiDynSource(int size, const EquiDynOptions& options) : size_(size), options_(options) {}

  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::int64_t period_steps() const override { return options_.steps; }

  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override {
    const double weight = peer_weight(size_, options_.eta);
    return MixingMatrix::from_pattern(
        {.shape = {size_}, .entries = {{0, 1.0 - weight}, {size_ - shift(phase), weight}}});
  }

  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override {
    const double weight = peer_weight(size_, options_.eta);
    const int distance = shift(phase);
    return {.rank = rank,
            .size = size_,
            .self_weight = 1.0 - weight,
            .sources = {{rank < distance ? rank - distance + size_ : rank - distance, weight}},
            .destinations = {
                {rank >= size_ - distance ? rank - (size_ - distance) : rank + distance, 1.0}}};
  }

 private:
  /// The last draw is kept for the plans of the other ranks: seeding takes longer than all else.
  [[nodiscard]] int shift(std::int64_t phase) const {
    const std::lock_guard lock(mutex_);
    if (phase != kept_phase_) {
      std::mt19937_64 generator = detail::generator_of(options_.seed, phase);
      kept_shift_ = 1 + detail::draw_below(generator, size_ - 1);
      kept_phase_ = phase;
    }
    return kept_shift_;
  }

  int size_;
  EquiDynOptions options_;
  mutable std::mutex mutex_;
  mutable std::int64_t kept_phase_ = -1;
  mutable int kept_shift_ = 0;
};

/// The pairs of a step of OU-EquiDyn.
std::vector<int> shifted_pairs(int size, std::uint64_t seed, std::int64_t phase) {
  std::mt19937_64 generator = detail::generator_of(seed, phase);
  const int shift = 1 + detail::draw_below(generator, size - 1);
  const int first = detail::draw_below(generator, size);
  std::vector<int> peers(size);
  std::iota(peers.begin(), peers.end(), 0);
  for (int i = 0; i < size; ++i) {
    const int rank = (first + i) % size;
    const int other = rank >= size - shift ? rank - (size - shift) : rank + shift;
    if (peers[rank] == rank && peers[other] == other) {
      peers[rank] = other;
      peers[other] = rank;
    }
  }
  return peers;
}

}  // namespace

MixingMatrix equistatic(int size, const EquiStaticOptions& options) {
  return equistatic_of(size, options, Direction::OneWay);
}

MixingMatrix equistatic_undirected(int size, const EquiStaticOptions& options) {
  return equistatic_of(size, options, Direction::BothWays);
}

int equistatic_draws(int size, double rho, double failure) {
  require_one_or_more(size, "size", "EquiStatic graph");
  require_fraction(rho, "rho", "EquiStatic graph");
  require_fraction(failure, "the probability of failure", "EquiStatic graph");
  const double draws = std::ceil(8.0 * std::log(2.0 * size / failure) / (3.0 * rho * rho));
  return static_cast<int>(std::min(draws, 2'000'000'000.0));
}

Schedule equidyn(int size, const EquiDynOptions& options) {
  check_dynamic(size, options);
  if (size == 1) {
    return static_schedule(MixingMatrix::identity(1));
  }
  return Schedule(std::make_unique<EquiDynSource>(size, options));
}

Schedule equidyn_undirected(int size, const EquiDynOptions& options) {
  check_dynamic(size, options);
  if (size == 1) {
    return static_schedule(MixingMatrix::identity(1));
  }
  return Schedule(
      std::make_unique<detail::MatchingSource>(size, options.steps, peer_weight(size, options.eta),
                                               [size, seed = options.seed](std::int64_t phase) {
                                                 return shifted_pairs(size, seed, phase);
                                               }));
}

}  // namespace bluefog::topology
