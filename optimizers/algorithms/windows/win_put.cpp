#include "optimizers/algorithms/windows/win_put.hpp"

#include <chrono>
#include <cstdint>

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

namespace {

LateRules rules_of(const AlgorithmParts& parts) {
  return {.grace = std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::duration<double>(parts.number("grace_s"))),
          .staleness_bound = static_cast<std::int64_t>(parts.number("staleness_bound")),
          .leaves_out = parts.number("leave_out_late") != 0.0};
}

}  // namespace

WinPut::WinPut(Context& context, std::vector<Bucket>& buckets, const Schedule& neighbors,
               const LateRules& rules)
    : Algorithm(buckets),
      windows_(context, values_of(buckets), names_of(buckets), neighbors,
               {.fill = ops::WindowFill::OwnValue}),
      rules_(rules),
      late_(context, windows_, rules) {}

void WinPut::step(const Round& round, const StepBucket& step_bucket) {
  windows_.check(*round.plan);
  const auto step = [&](std::size_t b) { step_bucket(buckets_[b]); };
  if (rules_.are_any()) {
    const std::int64_t number = late_.begin_round();
    windows_.run(step, [&](std::size_t b) { windows_.put(b, *round.plan, number); });
    const NeighborPlan& heard = late_.wait(*round.plan);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      windows_.average(b, heard, buckets_[b].values());
    }
  } else {
    windows_.run(step, [&](std::size_t b) {
      windows_.put(b, *round.plan);
      windows_.average(b, *round.plan, buckets_[b].values());
    });
  }
  note_changes(buckets_);
}

void WinPut::drain() {
  if (rules_.are_any()) {
    windows_.announce_absence();
  }
}

void WinPut::discard() {
  for (std::size_t b = 0; b < windows_.size(); ++b) {
    windows_.fill(b, ops::WindowFill::OwnValue);
  }
}

AlgorithmRow win_put_row() {
  return {.name = "win_put",
          .equation = "ψ = x − γ d; x ← W ψ̂, ψ̂ what neighbours have put last",
          .description = "Adapt-then-combine without waiting, by writing to neighbours.",
          .source = "BlueFog",
          .overlap = "nobody is waited for",
          .memory = {.copies_per_source = 1, .note = "in shared memory"},
          .options = {{.name = "grace_s",
                       .default_value = 0.0,
                       .meaning = "seconds that a round waits for late neighbours",
                       .least = 0.0,
                       .below = 1e9},
                      {.name = "staleness_bound",
                       .default_value = std::int64_t{0},
                       .meaning = "greatest age of an averaged value, in rounds",
                       .least = 0.0},
                      {.name = "leave_out_late",
                       .default_value = false,
                       .meaning = "what is beyond the bound is left out, in place of waited for",
                       .least = 0.0,
                       .below = 2.0}},
          .uses_windows = true,
          .counts_passes = true,
          .make = [](AlgorithmParts parts) {
            return std::make_unique<WinPut>(parts.context, parts.buckets,
                                            mixing_of(parts.options, parts.context.size()),
                                            rules_of(parts));
          }};
}

}  // namespace bluefog::optimizers
