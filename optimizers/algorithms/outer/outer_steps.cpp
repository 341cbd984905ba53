#include "optimizers/algorithms/outer/outer_steps.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/adapt_then_combine.hpp"
#include "optimizers/algorithms/choco.hpp"
#include "optimizers/algorithms/codes/coded_rounds.hpp"
#include "optimizers/algorithms/codes/consensus_step.hpp"
#include "optimizers/algorithms/gossip_pga.hpp"
#include "optimizers/algorithms/local_sgd.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/checks/mixing_requirements.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::optimizers {
namespace {

std::string why_unfit_rule(const DistributedOptimizerOptions& options, const OuterMomentum& rule,
                           const Schedule& schedule) {
  const std::string found = why_differences_stay(rule.without_gradients(), schedule);
  return found.empty()
             ? found
             : fmt::format(
                   "outer_momentum {}, outer_learning_rate {}: {} expects differences between ranks "
                   "to die out over what it averages with where there are no gradients, found that "
                   "they {}; use smaller ones{}",
                   rule.momentum, rule.learning_rate, options.algorithm.text(), found,
                   rule.learning_rate == 0.0 ? ", but a rate above 0" : "");
}

CodedRounds rounds_of(const OuterMomentum& rule, const Schedule& schedule,
                      const ops::Compression& compression) {
  return {.schedule = schedule,
          .compression = compression,
          .update = [rule](std::span<double> theta, std::span<double> v,
                           std::span<const double> average) {
            for (std::size_t k = 0; k < theta.size(); ++k) {
              rule.move(theta[k], v[k], average[k]);
            }
          }};
}

std::string text_of(const OuterMomentum& rule) {
  return fmt::format("outer_momentum {}, outer_learning_rate {}, ", rule.momentum,
                     rule.learning_rate);
}

/// CHOCO's demands, and the growth with the code itself.
std::string why_unfit_code(const DistributedOptimizerOptions& options, const OuterMomentum& rule,
                           const Schedule& schedule) {
  if (std::string problem = why_no_copies(options, schedule); !problem.empty()) {
    return problem;
  }
  AlgorithmRow row = row_of(options.algorithm);
  row.name += " with a compression";
  row.mixing.stochastic = Stochastic::RowsAndColumns;
  if (std::string problem = why_unfit(row, schedule, options.row_sums); !problem.empty()) {
    return problem;
  }
  return why_unfit_step(options, rounds_of(rule, schedule, *options.compression), text_of(rule));
}

/// CHOCO over the schedule of the options, for outer steps by `rule`.
std::unique_ptr<Algorithm> make_coded_averages(const AlgorithmParts& parts) {
  if (parts.options.plans) {
    throw InvalidArgument(fmt::format("rank {}, DistributedOptimizer: {}", parts.context.rank(),
                                      why_no_copies_for_plans(parts.options)));
  }
  const Schedule schedule = mixing_of(parts.options, parts.context.size());
  return std::make_unique<Choco>(parts.context, parts.buckets, schedule, parts.options.compression,
                                 parts.number("consensus_step_size"));
}

}  // namespace

OuterSteps::OuterSteps(std::vector<Bucket>& buckets, std::unique_ptr<Algorithm> averages,
                       std::int64_t period_rounds, Sent sent)
    : Algorithm(buckets),
      averages_(std::move(averages)),
      period_rounds_(period_rounds),
      start_(buckets),
      kept_(sent == Sent::Prepared ? make_states(buckets) : std::vector<at::Tensor>()) {}

bool OuterSteps::averages_with_neighbors() const noexcept {
  return averages_->averages_with_neighbors();
}

std::size_t OuterSteps::calls_due() const { return averages_->calls_due(); }

void OuterSteps::begin_once() {
  if (start_.begin(buckets_)) {
    begin();
  }
}

void OuterSteps::step_alone(const StepBucket& step_bucket) {
  begin_once();
  averages_->step_alone(step_bucket);
}

void OuterSteps::step(const Round& round, const StepBucket& step_bucket) {
  const bool is_outer = (round.index + 1) % period_rounds_ == 0;
  std::size_t prepared = 0;
  try {
    averages_->step(round, [&](const Bucket& bucket) {
      begin_once();
      step_bucket(bucket);
      if (is_outer && !kept_.empty()) {
        kept_[prepared].copy_(bucket.flat());
        prepare(prepared++);
      }
    });
  } catch (...) {
    while (prepared > 0) {
      --prepared;
      buckets_[prepared].flat().copy_(kept_[prepared]);
    }
    throw;
  }
  if (is_outer) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      update(b);
    }
    note_changes(buckets_);
  }
}

NamedTensors OuterSteps::state() const {
  NamedTensors state = start_.state();
  for (NamedTensors more : {own_state(), averages_->state()}) {
    state.insert(state.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  }
  return state;
}

void OuterSteps::restart() {
  start_.restart();
  for (const auto& [name, tensor] : own_state()) {
    tensor.zero_();
  }
  averages_->restart();
}

MomentumOuterSteps::MomentumOuterSteps(std::vector<Bucket>& buckets,
                                       std::unique_ptr<Algorithm> averages,
                                       std::int64_t period_rounds, const OuterMomentum& rule)
    : OuterSteps(buckets, std::move(averages), period_rounds,
                 rule.learning_rate == rule.consensus_share ? Sent::Parameters : Sent::Prepared),
      rule_(rule),
      moments_(make_states(buckets)) {}

void MomentumOuterSteps::prepare(std::size_t b) {
  update_elements(
      [share = rule_.learning_rate / rule_.consensus_share](auto& x, const auto& theta) {
        x = theta - NumberOf<decltype(x)>(share) * (theta - x);
      },
      buckets_[b].flat(), ReadOnly{start(b)});
}

void MomentumOuterSteps::update(std::size_t b) {
  update_elements(
      [rule = rule_](auto& x, auto& theta, auto& v) {
        rule.move(theta, v, x);
        x = theta;
      },
      buckets_[b].flat(), start(b), moments_[b]);
}

NamedTensors MomentumOuterSteps::own_state() const { return named(moments_, "outer momentum"); }

AlgorithmRow outer_row() {
  return {
      .name = "", .overlap = "the local steps of the next buckets", .allows_reevaluation = true};
}

AlgorithmRow outer_row_of_all_ranks(const MomentumOuterSteps::RuleOf& rule, Between between) {
  AlgorithmRow row = outer_row();
  row.why_unfit_schedule = [rule](const DistributedOptimizerOptions& options,
                                  const Schedule& schedule) {
    // However many ranks average, differences go as those of two.
    const int size = std::min(schedule.size(), 2);
    return why_unfit_rule(options, rule(options),
                          topology::static_schedule(topology::fully_connected(size)));
  };
  row.make = [rule, between](AlgorithmParts parts) {
    const std::int64_t period = between == Between::Gossip ? parts.options.global_period_rounds : 1;
    std::unique_ptr<Algorithm> averages;
    if (between == Between::Gossip) {
      averages = std::make_unique<GossipPga>(parts.context, parts.buckets, period);
    } else {
      averages = std::make_unique<LocalSgd>(parts.context, parts.buckets);
    }
    return std::make_unique<MomentumOuterSteps>(parts.buckets, std::move(averages), period,
                                                rule(parts.options));
  };
  return row;
}

AlgorithmRow outer_row_of_neighbors(const MomentumOuterSteps::RuleOf& rule) {
  AlgorithmRow row = outer_row();
  row.mixing = {.note = "rows sum to 1, and momentum lets differences between ranks die out"};
  row.why_unfit_schedule = [rule](const DistributedOptimizerOptions& options,
                                  const Schedule& schedule) {
    if (options.compression) {
      return why_unfit_code(options, rule(options), schedule);
    }
    // Who asks for other sums has models grow.
    return options.row_sums == RowSums::One ? why_unfit_rule(options, rule(options), schedule)
                                            : std::string();
  };
  row.why_unfit_plan = [](const DistributedOptimizerOptions& options, const NeighborPlan& /*plan*/,
                          const NeighborPlan* /*before*/) {
    return options.compression ? why_no_copies_for_plans(options) : std::string();
  };
  row.choose_numbers = [rule](const DistributedOptimizerOptions& options,
                              const Schedule& schedule) -> std::vector<ChosenNumber> {
    if (!options.compression) {
      return {};
    }
    const OuterMomentum momentum = rule(options);
    return chosen_step(options, rounds_of(momentum, schedule, *options.compression),
                       text_of(momentum));
  };
  row.make = [rule](AlgorithmParts parts) {
    std::unique_ptr<Algorithm> averages;
    if (parts.options.compression) {
      averages = make_coded_averages(parts);
    } else {
      averages = std::make_unique<AdaptThenCombine>(parts.context, parts.buckets);
    }
    return std::make_unique<MomentumOuterSteps>(parts.buckets, std::move(averages), 1,
                                                rule(parts.options));
  };
  return row;
}

}  // namespace bluefog::optimizers
