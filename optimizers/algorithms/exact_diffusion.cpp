#include "optimizers/algorithms/exact_diffusion.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "topology/lazy_mixing.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::optimizers {
namespace {

/// Self share with which no doubly stochastic W has an eigenvalue of −1/3 or below.
constexpr double kStableShare = 0.4;

}  // namespace

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
    update_elements([](const auto& x, auto& psi) { psi = x - psi; }, ReadOnly{buckets_[b].flat()},
                    corrections_[b]);
  }
  note_changes(buckets_);
}

NamedTensors ExactDiffusion::state() const { return named(corrections_, "correction"); }

void ExactDiffusion::restart() { zero(corrections_); }

AlgorithmRow exact_diffusion_row() {
  return {
      .name = "exact_diffusion",
      .equation = "ψ = x − γ d; x ← ½ (I + W) (ψ + x − ψ₋)",
      .description = "Adapt-then-combine with a correction that removes its bias.",
      .source = "arXiv 1702.05122",
      .overlap = "the local steps of the next buckets",
      .memory = {.copies = 1, .carried = "x − ψ₋", .conserved = "sums to 0 over the ranks"},
      .mixing = {.stochastic = Stochastic::RowsAndColumns, .is_symmetric = true, .is_fixed = true},
      .needs_every_step = true,
      .bound_to_values = "its corrections",
      .default_schedule =
          [](int size) { return topology::static_schedule(topology::symmetric_exponential(size)); },
      .transform =
          [](const Schedule& schedule) {
            return topology::static_schedule(topology::lazy(schedule.mixing_matrix(0)));
          },
      .make =
          [](AlgorithmParts parts) {
            return std::make_unique<ExactDiffusion>(parts.context, parts.buckets);
          }};
}

AlgorithmRow d2_row() {
  AlgorithmRow row = exact_diffusion_row();
  row.name = "d2";
  row.equation = "ψ = x − γ d; x ← W (ψ + x − ψ₋)";
  row.description = "Exact diffusion that averages more in a round.";
  row.source = "arXiv 1803.07068";
  row.mixing.eigenvalues_above = EigenvalueBound{.value = -1.0 / 3.0, .text = "-1/3"};
  row.default_schedule = [](int size) {
    return topology::static_schedule(
        topology::lazy(topology::symmetric_exponential(size), kStableShare));
  };
  row.transform = nullptr;
  return row;
}

}  // namespace bluefog::optimizers
