#include <utility>

#include "topology/mixing/derived_schedule.hpp"
#include "topology/mixing/rank_list.hpp"
#include "topology/schedule.hpp"

namespace bluefog {

Schedule Schedule::without(std::span<const int> ranks) const {
  std::vector<int> lost = lost_ranks("schedule without ranks", ranks, size());
  if (lost.empty()) {
    return *this;
  }
  return derived_schedule(*this, size(), [lost = std::move(lost)](const MixingMatrix& step) {
    return step.without(lost);
  });
}

Schedule Schedule::among(std::span<const int> ranks) const {
  std::vector<int> kept = kept_ranks("schedule among ranks", ranks, size());
  if (std::ssize(kept) == size()) {
    return *this;
  }
  const int count = static_cast<int>(kept.size());
  return derived_schedule(*this, count, [kept = std::move(kept)](const MixingMatrix& step) {
    return step.among(kept);
  });
}

}  // namespace bluefog
