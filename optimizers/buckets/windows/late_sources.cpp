#include "optimizers/buckets/windows/late_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "bluefog_cpp/deadline.hpp"

namespace bluefog::optimizers {

LateSources::LateSources(Context& context, BucketWindows& windows, const LateRules& rules)
    : context_(context),
      windows_(windows),
      rules_(rules),
      sources_(static_cast<std::size_t>(context.size())),
      heard_(NeighborPlan::alone(context.rank(), context.size())) {
  for (int rank = 0; rank < context.size(); ++rank) {
    sources_[static_cast<std::size_t>(rank)].counts.rank = rank;
  }
}

std::int64_t LateSources::begin_round() {
  clock_ = std::max(clock_ + 1, windows_.latest_stamp());
  return clock_;
}

std::int64_t LateSources::age_of(int rank) const {
  return std::max<std::int64_t>(0, clock_ - windows_.stamp_of(rank));
}

void LateSources::give_time(const NeighborPlan& plan) {
  const Deadline deadline = Deadline::after(rules_.grace);
  for (const WeightedRank& source : plan.sources) {
    const std::int64_t late_stamp = sources_[static_cast<std::size_t>(source.rank)].late_stamp;
    if (late_stamp >= 0 && windows_.stamp_of(source.rank) == late_stamp) {
      continue;
    }
    const auto left = rules_.grace.count() > 0 ? deadline.when() - Deadline::Clock::now()
                                               : Deadline::Clock::duration::zero();
    (void)windows_.wait_for(source.rank, clock_, std::max(left, Deadline::Clock::duration::zero()));
  }
}

bool LateSources::note_late(int rank) {
  Source& source = sources_[static_cast<std::size_t>(rank)];
  LateRank& counts = source.counts;
  source.late_stamp = windows_.stamp_of(rank);
  ++counts.rounds;
  bool is_left_out = false;
  if (age_of(rank) > rules_.staleness_bound && (rules_.leaves_out || rules_.staleness_bound > 0)) {
    is_left_out = rules_.leaves_out;
    if (!is_left_out) {
      (void)windows_.wait_for(rank, clock_ - rules_.staleness_bound, std::nullopt);
    }
  }
  counts.rounds_without += is_left_out ? 1 : 0;
  counts.oldest = is_left_out ? counts.oldest : std::max(counts.oldest, age_of(rank));
  if (std::has_single_bit(static_cast<std::uint64_t>(counts.rounds))) {
    context_.log().info(fmt::format(
        "rank {} was late in {} of this rank's rounds; {} went on without it, the others with "
        "values up to {} rounds old",
        rank, counts.rounds, counts.rounds_without, counts.oldest));
  }
  return is_left_out;
}

const NeighborPlan& LateSources::wait(const NeighborPlan& plan) {
  give_time(plan);
  heard_.self_weight = plan.self_weight;
  heard_.sources.clear();
  for (const WeightedRank& source : plan.sources) {
    const bool is_late = !windows_.is_gone(source.rank) && age_of(source.rank) > 0;
    if (!is_late) {
      sources_[static_cast<std::size_t>(source.rank)].late_stamp = -1;
    }
    if (is_late && note_late(source.rank)) {
      heard_.self_weight += source.weight;
    } else {
      heard_.sources.push_back(source);
    }
  }
  return heard_;
}

std::vector<LateRank> LateSources::ranks() const {
  std::vector<LateRank> late;
  for (const Source& source : sources_) {
    if (source.counts.rounds > 0) {
      late.push_back(source.counts);
    }
  }
  return late;
}

}  // namespace bluefog::optimizers
