#include "optimizers/algorithms/outer/accelerated_gossip.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "optimizers/algorithms/adapt_then_combine.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/checks/momentum_growth.hpp"

namespace bluefog::optimizers {
namespace {

AcceleratedGossip::Rule rule_of(const DistributedOptimizerOptions& options) {
  return {.learning_rate = number_of(options, "outer_learning_rate"),
          .consensus_share = number_of(options, "consensus_step_size"),
          .acceleration = number_of(options, "acceleration")};
}

}  // namespace

AcceleratedGossip::AcceleratedGossip(Context& context, std::vector<Bucket>& buckets,
                                     const Rule& rule)
    : OuterSteps(buckets, std::make_unique<AdaptThenCombine>(context, buckets), 1, Sent::Prepared),
      rule_(rule),
      earlier_(make_states(buckets)) {}

void AcceleratedGossip::begin() { keep_values(buckets_, earlier_); }

void AcceleratedGossip::prepare(std::size_t b) {
  update_elements([rule = rule_](auto& x, const auto& theta) { x = rule.y(theta, x); },
                  buckets_[b].flat(), ReadOnly{start(b)});
}

void AcceleratedGossip::update(std::size_t b) {
  update_elements(
      [rule = rule_](auto& x, auto& theta, auto& earlier, const auto& kept) {
        using Number = NumberOf<decltype(x)>;
        const auto y = rule.y(theta, kept);
        theta =
            y - Number(rule.consensus_share) * (y - x) + Number(rule.acceleration) * (y - earlier);
        earlier = y;
        x = theta;
      },
      buckets_[b].flat(), start(b), earlier_[b], ReadOnly{kept(b)});
}

NamedTensors AcceleratedGossip::own_state() const { return named(earlier_, "earlier y"); }

AlgorithmRow accelerated_gossip_row() {
  AlgorithmRow row = outer_row();
  row.name = "accelerated_gossip";
  row.aliases = {"gasloc"};
  row.equation =
      "x after H local steps from θ: y = θ − η (θ − x); x, θ ← y − α (y − W y) + γ (y − y₋)";
  row.description = "Local steps, and averages that go on in the direction of the last ones.";
  row.source = "arXiv 2606.11081";
  row.memory = {.copies = 3, .carried = "θ and y₋"};
  row.options = {{.name = "outer_learning_rate",
                  .default_value = 1.0,
                  .meaning = "η, from 0 to below 10",
                  .least = 0.0,
                  .below = 10.0},
                 {.name = "consensus_step_size",
                  .default_value = 1.0,
                  .meaning = "α, from 0 to below 10",
                  .least = 0.0,
                  .below = 10.0},
                 {.name = "acceleration",
                  .default_value = 0.2,
                  .meaning = "γ, from 0 to below 1",
                  .least = 0.0,
                  .below = 1.0}};
  row.mixing = {.note = "rows sum to 1, and γ lets differences between ranks die out"};
  row.why_unfit_schedule = [](const DistributedOptimizerOptions& options,
                              const Schedule& schedule) {
    if (options.row_sums == RowSums::Any) {
      return std::string();  // models grow as the caller asks
    }
    const AcceleratedGossip::Rule rule = rule_of(options);
    const std::string found = why_differences_stay(
        {.momentum = rule.acceleration, .of_taken = rule.consensus_share}, schedule);
    return found.empty()
               ? found
               : fmt::format(
                     "acceleration {}, consensus_step_size {}: {} expects "
                     "differences between ranks to die out over the schedule where "
                     "there are no gradients, found that they {}; use smaller ones",
                     rule.acceleration, rule.consensus_share, options.algorithm.text(), found);
  };
  row.make = [](AlgorithmParts parts) {
    return std::make_unique<AcceleratedGossip>(parts.context, parts.buckets,
                                               rule_of(parts.options));
  };
  return row;
}

}  // namespace bluefog::optimizers
