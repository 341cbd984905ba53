#include "optimizers/algorithms/averaged_momentum.hpp"

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

}  // namespace bluefog::optimizers
