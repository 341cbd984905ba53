#include "optimizers/algorithms/exact_diffusion.hpp"

#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {

ExactDiffusion::ExactDiffusion(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets),
      averages_(context, values_of(buckets), names_of(buckets)),
      corrections_(make_states(buckets)) {}

void ExactDiffusion::step(const Round& round, const StepBucket& step_bucket) {
  averages_.run(round, [&](std::size_t b) {
    step_bucket(buckets_[b]);
    update_elements(
        [](auto& x, auto& correction) {
          const auto psi = x;
          x += correction;
          correction = psi;
        },
        buckets_[b].flat(), corrections_[b]);
  });
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements([](const auto& x, auto& psi) { psi = x - psi; },
                    ReadOnly{buckets_[b].flat()}, corrections_[b]);
  }
  note_changes(buckets_);
}

NamedTensors ExactDiffusion::state() const { return named(corrections_, "correction"); }

void ExactDiffusion::restart() { zero(corrections_); }

}  // namespace bluefog::optimizers
