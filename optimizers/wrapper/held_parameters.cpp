#include "optimizers/wrapper/held_parameters.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {

HeldParameters::HeldParameters(int rank, const Logger& log, const AlgorithmRow& row,
                               std::vector<Bucket> buckets, NamedTensors frozen)
    : rank_(rank), log_(log), row_(row), buckets_(std::move(buckets)), frozen_(std::move(frozen)) {
  if (!row.bound_to_values.empty()) {
    bound_values_.emplace(buckets_);
  }
}

bool HeldParameters::are_bound() const {
  return std::ranges::all_of(buckets_, [](const Bucket& bucket) { return bucket.is_bound(); });
}

void HeldParameters::take_back(Algorithm& algorithm) {
  if (are_bound()) {
    return;
  }
  algorithm.drain();
  try {
    for (Bucket& bucket : buckets_) {
      for (const std::string& name : bucket.rebind()) {
        log_.debug(fmt::format(
            "parameter '{}': its memory was replaced; its value is back in its bucket", name));
      }
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("rank {}, {}", rank_, error.what()));
  }
}

void HeldParameters::take_back_stepped(const Bucket& bucket) {
  if (!bucket.is_bound()) {
    buckets_[static_cast<std::size_t>(bucket.index())].rebind();
  }
}

void HeldParameters::check_frozen() const {
  for (const NamedTensor& item : frozen_) {
    if (item.tensor.requires_grad()) {
      throw StateError(fmt::format(
          "rank {}, parameter '{}': expected it to stay frozen as when the distributed optimizer was "
          "made, found it requiring gradients; make a new distributed optimizer",
          rank_, item.name));
    }
  }
}

void HeldParameters::check_values() {
  const auto parameter = bound_values_ ? bound_values_->first_set() : std::nullopt;
  if (parameter) {
    throw StateError(fmt::format(
        "rank {}, {}, parameter '{}': expected the value that the last step left, to which {} "
        "belong, found another one, or memory in its place; call restart() on all ranks when "
        "parameters were set, or choose adapt_then_combine, which goes on from them",
        rank_, row_.name, *parameter, row_.bound_to_values));
  }
}

void HeldParameters::note_values() {
  if (bound_values_) {
    bound_values_->note();
  }
}

bool HeldParameters::values_hold() { return bound_values_ && bound_values_->hold(); }

void HeldParameters::forget_values() {
  if (bound_values_) {
    bound_values_->forget();
  }
}

}  // namespace bluefog::optimizers
