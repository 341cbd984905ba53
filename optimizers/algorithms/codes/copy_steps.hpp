#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "optimizers/algorithms/codes/coded_values.hpp"
#include "optimizers/bucket.hpp"

/// @file
/// Steps of CHOCO's copies of what ranks have told each other, element by element.
namespace bluefog::optimizers {

/// copy += difference. @return whether all of that is finite.
inline bool add(const Bucket& bucket, std::span<const float> difference, const at::Tensor& copy) {
  LargestMagnitude largest;
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    auto* const to = copy.data_ptr<Element>();
    for (std::size_t k = first; k < first + count; ++k) {
      largest.note(difference[k]);
      to[k] += difference[k];
    }
  });
  return largest.is_finite();
}

/// heard += difference; x += share (heard − told).
inline void add_and_approach(const Bucket& bucket, std::span<const float> difference, double share,
                             const at::Tensor& told, const at::Tensor& heard) {
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    const auto* const own = told.const_data_ptr<Element>();
    auto* const theirs = heard.data_ptr<Element>();
    auto* const x = bucket.flat().data_ptr<Element>();
    const auto factor = static_cast<Element>(share);
    for (std::size_t k = first; k < first + count; ++k) {
      theirs[k] += difference[k];
      x[k] += factor * (theirs[k] - own[k]);
    }
  });
}

/// x += share (heard − told).
inline void approach(const Bucket& bucket, double share, const at::Tensor& told,
                     const at::Tensor& heard) {
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    const auto* const own = told.const_data_ptr<Element>();
    const auto* const theirs = heard.const_data_ptr<Element>();
    auto* const x = bucket.flat().data_ptr<Element>();
    const auto factor = static_cast<Element>(share);
    for (std::size_t k = first; k < first + count; ++k) {
      x[k] += factor * (theirs[k] - own[k]);
    }
  });
}

}  // namespace bluefog::optimizers
