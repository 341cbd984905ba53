#include "optimizers/algorithms/outer/outer_start.hpp"

#include <torch/torch.h>

#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {

OuterStart::OuterStart(const std::vector<Bucket>& buckets)
    : values_(make_states(buckets)), has_begun_(at::zeros({1}, at::kLong)) {}

bool OuterStart::begin(const std::vector<Bucket>& buckets) {
  if (has_begun_.item<std::int64_t>() != 0) {
    return false;
  }
  keep_values(buckets, values_);
  has_begun_.fill_(1);
  return true;
}

NamedTensors OuterStart::state() const {
  NamedTensors state = named(values_, "outer start");
  state.push_back({"outer steps begun", has_begun_});
  return state;
}

void OuterStart::restart() {
  zero(values_);
  has_begun_.zero_();
}

}  // namespace bluefog::optimizers
