#include "optimizers/algorithms/momentum/quasi_global_momentum.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/checks/mixing_requirements.hpp"

namespace bluefog::optimizers {

void QuasiGlobalMomentum::step(const Round& round, const StepBucket& step_bucket) {
  keep_values(buckets_, starts_);
  averages_.run(round, [&](std::size_t b) {
    step_bucket(buckets_[b]);
    update_elements(
        [beta = momentum_](auto& x, const auto& v) { x -= NumberOf<decltype(x)>(beta) * v; },
        buckets_[b].flat(), ReadOnly{moments_[b]});
  });
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [beta = momentum_](auto& v, const auto& x, const auto& start) {
          const auto share = NumberOf<decltype(v)>(beta);
          v = share * v + (1 - share) * (start - x);
        },
        moments_[b], ReadOnly{buckets_[b].flat()}, ReadOnly{starts_[b]});
  }
  note_changes(buckets_);
}

AlgorithmRow quasi_global_momentum_row() {
  AlgorithmRow row = averaged_momentum_row();
  row.name = "quasi_global_momentum";
  row.aliases = {"qg_dsgdm"};
  row.equation = "x⁺ = W (x − γ d − β v); v ← β v + (1 − β) (x − x⁺)";
  row.description =
      "QG-DSGDm: momentum from the way that the averaged model moves; the paper's at a constant "
      "rate alone.";
  row.source = "arXiv 2102.04761";
  row.why_unfit_schedule = [](const DistributedOptimizerOptions& options,
                              const Schedule& schedule) {
    return options.momentum > 0.0
               ? why_unfit_momentum(options.algorithm,
                                    QuasiGlobalMomentum::without_gradients(options.momentum),
                                    schedule)
               : std::string();
  };
  row.make = [](AlgorithmParts parts) {
    return std::make_unique<QuasiGlobalMomentum>(parts.context, parts.buckets,
                                                 parts.options.momentum);
  };
  return row;
}

}  // namespace bluefog::optimizers
