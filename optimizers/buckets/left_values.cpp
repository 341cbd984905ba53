#include "optimizers/buckets/left_values.hpp"

#include <torch/torch.h>

#include "optimizers/buckets/fingerprint.hpp"

namespace bluefog::optimizers {
namespace {

at::Tensor values_of(const Bucket& bucket, std::size_t segment) {
  const Segment& place = bucket.segments()[segment];
  return bucket.flat().narrow(0, place.offset, place.count());
}

}  // namespace

void KeptValues::keep(std::size_t segment) {
  const torch::NoGradGuard no_grad;
  values_.emplace_back(segment, values_of(*bucket_, segment).clone());
}

void KeptValues::keep_all() {
  for (std::size_t i = 0; i < bucket_->segments().size(); ++i) {
    keep(i);
  }
}

void KeptValues::put_back() const {
  const torch::NoGradGuard no_grad;
  for (const auto& [segment, values] : values_) {
    values_of(*bucket_, segment).copy_(values);
  }
}

std::uint64_t LeftValues::mark_of(const Segment& segment) const {
  const at::Tensor& flat = bucket_->flat();
  if (!flat.is_cpu()) {
    return segment.parameter.unsafeGetTensorImpl()->version_counter().current_version();
  }
  const auto element = static_cast<std::size_t>(flat.element_size());
  return fingerprint(static_cast<const char*>(flat.const_data_ptr()) +
                         static_cast<std::size_t>(segment.offset) * element,
                     static_cast<std::size_t>(segment.count()) * element);
}

void LeftValues::note() {
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    marks_[i] = mark_of(bucket_->segments()[i]);
  }
}

bool LeftValues::is_set(std::size_t segment) const {
  const Segment& place = bucket_->segments()[segment];
  return !bucket_->is_bound(place) || mark_of(place) != marks_[segment];
}

}  // namespace bluefog::optimizers
