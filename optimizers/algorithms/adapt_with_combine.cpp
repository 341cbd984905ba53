#include "optimizers/algorithms/adapt_with_combine.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/consensus/adaptive_consensus.hpp"
#include "optimizers/algorithms/momentum/moment_averages.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/parameter.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

/// The end of the round before, whose average the step that comes next waits for. If it has failed,
/// that step is made all the same, since other ranks wait in it, and throws when it is over: else
/// one failure would go to and fro between the ranks for ever.
class AdaptWithCombine::EarlierRound {
 public:
  template <typename Wait>
  void end(Wait&& wait) {
    try {
      std::forward<Wait>(wait)();
    } catch (const TimeoutError&) {
      throw;  // or each bucket would wait as long
    } catch (const Error&) {
      error_ = error_ ? error_ : std::current_exception();
    }
  }

  void rethrow() const {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::exception_ptr error_;
};

AdaptWithCombine::AdaptWithCombine(Context& context, std::vector<Bucket>& buckets,
                                   Stepping stepping)
    : Algorithm(buckets),
      context_(context),
      steps_whole_(stepping == Stepping::Whole),
      averages_(context, values_of(buckets), names_of(buckets)),
      options_(buckets.size()),
      works_(buckets.size()),
      is_published_(buckets.size(), 0) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    options_[b].name = buckets[b].name();
    options_[b].completion = ops::Completion::OnWait;
    left_.emplace_back(buckets[b]);
    times_set_.emplace_back(buckets[b].segments().size(), 0);
  }
}

// An optimizer that steps all parameters with the first bucket has to find all averages formed.
template <typename StepOne>
void AdaptWithCombine::combine_and(EarlierRound& earlier, StepOne&& step_one) {
  const auto combine_checked = [&](std::size_t b) {
    earlier.end([&] {
      combine(b);
      check_averages_stay(b);
    });
  };
  for (std::size_t b = 0; steps_whole_ && b < buckets_.size(); ++b) {
    combine_checked(b);
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!steps_whole_) {
      combine_checked(b);
    }
    step_one(b);
  }
}

void AdaptWithCombine::step(const Round& round, const StepBucket& step_bucket) {
  if (round.averaging != Averaging::Neighbors) {
    step_after_average(round, step_bucket);
    return;
  }
  EarlierRound earlier;
  run_round(context_, buckets_.size(), [&](std::size_t& issued) {
    combine_and(earlier, [&](std::size_t b) {
      step_bucket(buckets_[b]);
      left_[b].note();
      options_[b].check = b == 0 ? round.check : ops::PlanCheck::Trusted;
      ++issued;
      works_[b] = ops::neighbor_allreduce_nonblocking(context_, buckets_[b].values(), round.plan,
                                                      options_[b]);
      is_published_[b] = 1;
    });
  });
  earlier.rethrow();
}

void AdaptWithCombine::step_after_average(const Round& round, const StepBucket& step_bucket) {
  const std::size_t calls_due = round.averaging == Averaging::Nobody ? 0 : buckets_.size();
  EarlierRound earlier;
  run_round(context_, calls_due, [&](std::size_t& issued) {
    combine_and(earlier, [](std::size_t /*bucket*/) {});
    issued = calls_due;
  });
  averages_.run(round, [](std::size_t /*bucket*/) {});
  note_changes(buckets_);
  for (const Bucket& bucket : buckets_) {
    step_bucket(bucket);
  }
  earlier.rethrow();
}

void AdaptWithCombine::step_alone(const StepBucket& step_bucket) {
  EarlierRound earlier;
  combine_and(earlier, [&](std::size_t b) { step_bucket(buckets_[b]); });
  earlier.rethrow();
}

// Parameters that the caller has set since the last step stay as they are: the average in flight is
// of what they were before.
void AdaptWithCombine::combine(std::size_t b) {
  KeptValues set(buckets_[b]);
  if (is_published_[b] != 0) {
    for (std::size_t i = 0; i < times_set_[b].size(); ++i) {
      const bool is_set = left_[b].is_set(i);
      times_set_[b][i] = is_set ? times_set_[b][i] + 1 : 0;
      if (is_set) {
        set.keep(i);
      }
    }
  }
  end_average(b, set);
}

void AdaptWithCombine::end_average(std::size_t b, const KeptValues& kept) {
  is_published_[b] = 0;
  try {
    wait_on_current_stream(std::exchange(works_[b], Work()));
  } catch (...) {
    kept.put_back();
    throw;
  }
  kept.put_back();
  buckets_[b].note_change();
}

// Ranks would drift apart without a word if a parameter were set after every step.
void AdaptWithCombine::check_averages_stay(std::size_t b) const {
  for (std::size_t i = 0; i < times_set_[b].size(); ++i) {
    if (times_set_[b][i] > 1) {
      throw StateError(fmt::format(
          "rank {}, adapt_with_combine, parameter '{}': expected values that are set between steps "
          "now and then, found new ones after {} rounds in a row: each time they take the place of "
          "the average in flight, and the parameter is never averaged; form the average first "
          "(drain, finish in Python), or choose adapt_then_combine",
          context_.rank(), buckets_[b].segments()[i].name, times_set_[b][i]));
    }
  }
}

template <typename End>
void AdaptWithCombine::for_all_in_flight(End&& end) {
  EarlierRound earlier;
  try {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      earlier.end([&] { end(b); });
    }
  } catch (const TimeoutError&) {
    std::ranges::fill(works_, Work());
    std::ranges::fill(is_published_, 0);
    throw;
  }
  earlier.rethrow();
}

void AdaptWithCombine::drain() {
  for_all_in_flight([this](std::size_t b) { combine(b); });
}

void AdaptWithCombine::discard() {
  for_all_in_flight([this](std::size_t b) {
    KeptValues all(buckets_[b]);
    if (is_published_[b] != 0) {
      all.keep_all();
    }
    end_average(b, all);
  });
}

AlgorithmRow adapt_with_combine_row() {
  return with_moment_averages(
      with_consensus(
          {.name = "adapt_with_combine",
           .aliases = {"awc"},
           .equation = "x ← W x − γ d(x)",
           .description =
               "The average with the neighbours and the local step from the same parameters.",
           .source = "D-PSGD, arXiv 1705.09056; BlueFog",
           .overlap = "a whole iteration",
           .memory = {.copies = 1,
                      .note =
                          "in shared memory; between hosts also 1 for each neighbour heard; with "
                          "`average_moments` 1 or 2 in their place"},
           .counts_passes = true,
           .make = [](AlgorithmParts parts) -> std::unique_ptr<Algorithm> {
             return std::make_unique<AdaptWithCombine>(parts.context, parts.buckets,
                                                       parts.options.stepping);
           }},
          AdaptiveConsensus::Order::AdaptWithCombine),
      MomentAverages::Order::AdaptWithCombine);
}

}  // namespace bluefog::optimizers
