#include "pipeline/epoch_shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <cstddef>
#include <numeric>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {
namespace {

/// A permutation of 0 … count − 1. Boost's draws are the same everywhere, the standard's are not.
std::vector<std::int64_t> order_of(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  boost::random::mt19937_64 engine(seed);
  for (std::size_t last = order.size() - 1; last > 0; --last) {
    boost::random::uniform_int_distribution<std::size_t> place(0, last);
    std::swap(order[last], order[place(engine)]);
  }
  return order;
}

}  // namespace

EpochShares::EpochShares(std::int64_t samples, std::int64_t global_batch, std::uint64_t seed)
    : global_batch_(global_batch), seed_(seed) {
  if (samples < 1 || global_batch < 1) {
    throw InvalidArgument(
        fmt::format("epoch shares: expected at least 1 sample and 1 row a step, found {} and {}",
                    samples, global_batch));
  }
  order_.resize(static_cast<std::size_t>(samples));
  begin_epoch(0);
}

void EpochShares::begin_epoch(std::int64_t epoch) {
  if (epoch < 0) {
    throw InvalidArgument(
        fmt::format("epoch shares: expected an epoch of 0 or more, found {}", epoch));
  }
  constexpr std::uint64_t kOddConstant = 0x9e3779b97f4a7c15;  // spreads epochs over all seeds
  order_ = order_of(static_cast<std::int64_t>(order_.size()),
                    seed_ + kOddConstant * (static_cast<std::uint64_t>(epoch) + 1));
  position_ = 0;
}

std::int64_t EpochShares::left() const noexcept {
  return static_cast<std::int64_t>(order_.size() - position_);
}

GlobalBatch EpochShares::next(int replicas, int replica) {
  if (replicas < 1 || replica < 0 || replica >= replicas) {
    throw InvalidArgument(
        fmt::format("epoch shares: expected one of at least 1 replicas, found number {} of {}",
                    replica, replicas));
  }
  if (left() == 0) {
    throw StateError(
        fmt::format("epoch shares: expected samples that are left in the epoch, found all {} seen",
                    order_.size()));
  }
  const std::int64_t rows = std::min(global_batch_, left());
  const std::int64_t before =
      rows / replicas * replica + std::min<std::int64_t>(replica, rows % replicas);
  const std::int64_t own = rows / replicas + (replica < rows % replicas ? 1 : 0);
  const auto first = order_.begin() + static_cast<std::ptrdiff_t>(position_) + before;
  position_ += static_cast<std::size_t>(rows);
  return {.rows = rows, .samples = {first, first + own}};
}

}  // namespace bluefog::pipeline
