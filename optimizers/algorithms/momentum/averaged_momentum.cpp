#include "optimizers/algorithms/momentum/averaged_momentum.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {

AveragedMomentum::AveragedMomentum(Context& context, std::vector<Bucket>& buckets, double momentum)
    : Algorithm(buckets),
      momentum_(momentum),
      averages_(context, values_of(buckets), names_of(buckets)),
      moments_(make_states(buckets)),
      starts_(make_states(buckets)) {}

NamedTensors AveragedMomentum::state() const { return named(moments_, "momentum"); }

void AveragedMomentum::restart() { zero(moments_); }

AlgorithmRow averaged_momentum_row() {
  return {.name = "",
          .overlap = "the local steps of the next buckets",
          .memory = {.copies = 2, .carried = "v"},
          .options = {{.name = "momentum",
                       .default_value = DistributedOptimizerOptions{}.momentum,
                       .meaning = "β, from 0 to below 1; the wrapped optimizer has none of its own",
                       .least = 0.0,
                       .below = 1.0,
                       .is_field = true}},
          .mixing = {.note = "rows sum to 1, and momentum lets differences between ranks die out"},
          .needs_every_step = true};
}

}  // namespace bluefog::optimizers
