#include "optimizers/buckets/left_values.hpp"

#include <torch/torch.h>

#include <array>
#include <bit>
#include <cstring>

namespace bluefog::optimizers {
namespace {

constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
/// Chains of products, enough of them to hide the time that one product takes.
constexpr std::size_t kLanes = 4;

std::uint64_t stirred(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * kOdd, 29);
}

// A change of any byte changes it, but for one in 2^64.
std::uint64_t fingerprint(const char* bytes, std::size_t count) {
  std::array<std::uint64_t, kLanes> states{1, 2, 3, 4};
  constexpr std::size_t kBlock = kLanes * sizeof(std::uint64_t);
  std::array<std::uint64_t, kLanes> words{};
  for (; count >= kBlock; count -= kBlock, bytes += kBlock) {
    std::memcpy(words.data(), bytes, kBlock);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      states[lane] = stirred(states[lane], words[lane]);
    }
  }
  words = {};
  std::memcpy(words.data(), bytes, count);
  std::uint64_t result = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    result = stirred(result, stirred(states[lane], words[lane]));
  }
  return result;
}

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
