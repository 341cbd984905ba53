#include "optimizers/algorithms/ceca.hpp"

#include <fmt/format.h>

#include <optional>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {
namespace {

using topology::Ceca;
using topology::CecaPorts;
using topology::CecaStep;

/// CECA of two ports or of one, if the schedule is what travels in it.
std::optional<Ceca> ceca_of(const Schedule& schedule) {
  const int size = schedule.size();
  const auto carries = [&](const Ceca& ceca) {
    const Schedule exchange = ceca.exchange();
    if (schedule.period_steps() != exchange.period_steps()) {
      return false;
    }
    for (std::int64_t step = 0; step < exchange.period_steps(); ++step) {
      if (!(schedule.mixing_matrix(step) == exchange.mixing_matrix(step))) {
        return false;
      }
    }
    return true;
  };
  Ceca two(size, CecaPorts::Two);
  if (carries(two)) {
    return two;
  }
  if (size % 2 == 0) {
    Ceca one(size, CecaPorts::One);
    if (carries(one)) {
      return one;
    }
  }
  return std::nullopt;
}

std::string why_unfit_schedule(const DistributedOptimizerOptions& /*options*/,
                               const Schedule& schedule) {
  return ceca_of(schedule)
             ? std::string()
             : fmt::format(
                   "schedule: ceca expects none, or topology::Ceca({0}).exchange(), because its "
                   "weights belong to the order of those messages; found another one for {0} ranks",
                   schedule.size());
}

std::string why_unfit_plan(const DistributedOptimizerOptions& /*options*/,
                           const NeighborPlan& /*plan*/, const NeighborPlan* /*before*/) {
  return "expected no weights for one round: ceca knows whom each round hears, and its weights "
         "belong to that order";
}

}  // namespace

CecaAveraging::CecaAveraging(Context& context, std::vector<Bucket>& buckets, const Ceca& ceca)
    : Algorithm(buckets),
      context_(context),
      period_(ceca.steps()),
      without_own_(make_states(buckets)),
      messages_(make_states(buckets)),
      with_own_calls_(context, values_of(buckets), names_of(buckets)),
      without_own_calls_(context, views_of(without_own_), names_of(buckets)),
      works_(buckets.size()) {
  keep_values(buckets_, without_own_);
}

// After `keep_values` of all buckets: the first one's step may be that of all.
void CecaAveraging::step_both(std::size_t b, const StepBucket& step_bucket) {
  const at::Tensor& before = messages_[b];
  step_bucket(buckets_[b]);
  update_elements([](auto& s, const auto& x, const auto& x_before) { s += x - x_before; },
                  without_own_[b], ReadOnly{buckets_[b].flat()}, ReadOnly{before});
}

void CecaAveraging::combine(const CecaStep& now) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [&](auto& x, auto& s, const auto& m) {
          using Number = NumberOf<decltype(x)>;
          // Differences keep values that ranks agree on, to the last bit.
          x += static_cast<Number>(1.0 - now.own) * (m - x);
          if (now.others == 0.0) {
            s = m;
          } else {
            s += static_cast<Number>(1.0 - now.others) * (m - s);
          }
        },
        buckets_[b].flat(), without_own_[b], ReadOnly{messages_[b]});
  }
}

void CecaAveraging::step(const Round& round, const StepBucket& step_bucket) {
  if (period_.empty()) {
    step_alone(step_bucket);
    return;
  }
  const CecaStep& now =
      period_[static_cast<std::size_t>(round.index % static_cast<std::int64_t>(period_.size()))];
  NeighborAverages& calls =
      now.sends == CecaStep::Sends::WithOwn ? with_own_calls_ : without_own_calls_;
  run_overlapped_round(context_, calls_due(), works_, [&](std::size_t& issued) {
    keep_values(buckets_, messages_);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      step_both(b, step_bucket);
      ++issued;
      works_[b] = calls.start(round, b, views_of({messages_[b]}).front());
    }
  });
  combine(now);
  note_changes(buckets_);
}

void CecaAveraging::step_alone(const StepBucket& step_bucket) {
  keep_values(buckets_, messages_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    step_both(b, step_bucket);
  }
}

void CecaAveraging::discard() { restart(); }

NamedTensors CecaAveraging::state() const { return named(without_own_, "values of others"); }

void CecaAveraging::restart() { keep_values(buckets_, without_own_); }

AlgorithmRow ceca_row() {
  return {
      .name = "ceca",
      .equation = "x ← a x' + (1 − a) m; s ← b s' + (1 − b) m",
      .description =
          "The local step on x and on s, then one message m, a neighbour's x' or s': "
          "the mean after ⌈log₂ n⌉ rounds of any n ranks.",
      .source = "DSGD-CECA, arXiv 2306.00256",
      .overlap = "the local steps of the next buckets",
      .memory = {.copies = 2, .note = "s and the message", .carried = "s"},
      .mixing = {.stochastic = Stochastic::Any,
                 .note = "`topology::Ceca(n).exchange()`, which it takes by itself"},
      .full_precision_because = "each step adds a difference of parameters to another variable",
      .default_schedule = [](int size) { return Ceca(size).exchange(); },
      .own_schedules = {{.name = "ceca", .make = [](int size) { return Ceca(size).exchange(); }},
                        {.name = "ceca-one-port",
                         .make = [](int size) { return Ceca(size, CecaPorts::One).exchange(); }}},
      .why_unfit_schedule = &why_unfit_schedule,
      .why_unfit_plan = &why_unfit_plan,
      .make = [](AlgorithmParts parts) -> std::unique_ptr<Algorithm> {
        const Schedule schedule = mixing_of(parts.options, parts.context.size());
        const std::optional<Ceca> ceca = ceca_of(schedule);
        if (!ceca) {
          throw InvalidArgument(why_unfit_schedule(parts.options, schedule));
        }
        return std::make_unique<CecaAveraging>(parts.context, parts.buckets, *ceca);
      }};
}

}  // namespace bluefog::optimizers
