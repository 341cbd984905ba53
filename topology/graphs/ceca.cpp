#include "topology/ceca.hpp"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::topology {
namespace {

CecaStep step_after(int others, bool digit, CecaPorts ports) {
  const double held = others;
  const double sent = digit ? held + 1.0 : held;
  CecaStep step;
  step.sends = digit ? CecaStep::Sends::WithOwn : CecaStep::Sends::WithoutOwn;
  step.distance = ports == CecaPorts::One ? 2 * others + 1 : others + (digit ? 1 : 0);
  step.own = (held + 1.0) / (held + 1.0 + sent);
  step.others = held / (held + sent);
  return step;
}

}  // namespace

Ceca::Ceca(int size, CecaPorts ports) : size_(size), ports_(ports) {
  if (size < 1) {
    throw InvalidArgument(fmt::format("CECA: size is {}, expected at least 1", size));
  }
  if (ports == CecaPorts::One && size > 1 && size % 2 != 0) {
    throw InvalidArgument(
        fmt::format("CECA with one port: size is {}, expected an even number", size));
  }
  const auto target = static_cast<unsigned>(size - 1);
  int others = 0;
  for (int bit = std::bit_width(target) - 1; bit >= 0; --bit) {
    const bool digit = (target >> static_cast<unsigned>(bit) & 1U) != 0;
    steps_.push_back(step_after(others, digit, ports));
    others = 2 * others + (digit ? 1 : 0);
  }
}

void Ceca::check_step(int step) const {
  if (step >= 0 && step < std::ssize(steps_)) {
    return;
  }
  throw InvalidArgument(fmt::format("CECA of {} ranks: step is {}, expected 0 to {}", size_, step,
                                    std::ssize(steps_) - 1));
}

int Ceca::source_in(int rank, const CecaStep& step) const {
  const bool ahead = ports_ == CecaPorts::One && rank % 2 == 0;
  const int distance = step.distance % size_;
  const int source = ahead ? rank - (size_ - distance) : rank - distance;
  return source < 0 ? source + size_ : source;
}

int Ceca::source(int rank, int step) const {
  check_step(step);
  if (rank < 0 || rank >= size_) {
    throw InvalidArgument(
        fmt::format("CECA: asked for rank {}, expected 0 to {}", rank, size_ - 1));
  }
  return source_in(rank, steps_[step]);
}

Schedule Ceca::exchange() const {
  if (steps_.empty()) {
    return static_schedule(MixingMatrix::identity(1));
  }
  std::vector<MixingMatrix> matrices;
  for (const CecaStep& step : steps_) {
    if (ports_ == CecaPorts::Two) {
      matrices.push_back(
          MixingMatrix::from_pattern({.shape = {size_}, .entries = {{source_in(0, step), 1.0}}}));
      continue;
    }
    std::vector<std::vector<WeightedRank>> rows(size_);
    for (int rank = 0; rank < size_; ++rank) {
      rows[rank] = {{source_in(rank, step), 1.0}};
    }
    matrices.push_back(MixingMatrix::from_rows(std::move(rows)));
  }
  return cycle(std::move(matrices));
}

MixingMatrix Ceca::stacked_matrix(int step) const {
  check_step(step);
  const CecaStep& now = steps_[step];
  const int sent = now.sends == CecaStep::Sends::WithOwn ? 0 : size_;
  std::vector<std::vector<WeightedRank>> rows(2 * static_cast<std::size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) {
    const int message = sent + source_in(rank, now);
    rows[rank] = {{rank, now.own}, {message, 1.0 - now.own}};
    rows[size_ + rank] = {{message, 1.0 - now.others}};
    if (now.others != 0.0) {
      rows[size_ + rank].push_back({size_ + rank, now.others});
    }
  }
  return MixingMatrix::from_rows(std::move(rows));
}

void Ceca::apply(int step, std::span<double> with_own, std::span<double> without_own) const {
  check_step(step);
  const auto expected = static_cast<std::size_t>(size_);
  if (with_own.size() != expected || without_own.size() != expected) {
    throw InvalidArgument(fmt::format("CECA of {} ranks applied to {} and {} values", size_,
                                      with_own.size(), without_own.size()));
  }
  const CecaStep& now = steps_[step];
  const std::span<double> held = now.sends == CecaStep::Sends::WithOwn ? with_own : without_own;
  const std::vector<double> sent(held.begin(), held.end());
  for (int rank = 0; rank < size_; ++rank) {
    const double message = sent[source_in(rank, now)];
    with_own[rank] = now.own * with_own[rank] + (1.0 - now.own) * message;
    // s holds nothing before the first step, not even a number.
    const double before = now.others == 0.0 ? 0.0 : now.others * without_own[rank];
    without_own[rank] = before + (1.0 - now.others) * message;
  }
}

}  // namespace bluefog::topology
