#include "optimizers/buckets/bound_values.hpp"

#include <cstddef>

namespace bluefog::optimizers {

BoundValues::BoundValues(const std::vector<Bucket>& buckets) : buckets_(&buckets) {
  for (const Bucket& bucket : buckets) {
    left_.emplace_back(bucket);
  }
}

void BoundValues::note() {
  if (set_) {
    return;
  }
  for (LeftValues& values : left_) {
    values.note();
  }
  is_noted_ = true;
}

std::optional<std::string> BoundValues::first_set() {
  for (std::size_t b = 0; b < left_.size() && is_noted_ && !set_; ++b) {
    const auto& segments = (*buckets_)[b].segments();
    for (std::size_t i = 0; i < segments.size() && !set_; ++i) {
      if (left_[b].is_set(i)) {
        set_ = segments[i].name;
      }
    }
  }
  return set_;
}

void BoundValues::forget() {
  is_noted_ = false;
  set_.reset();
}

}  // namespace bluefog::optimizers
