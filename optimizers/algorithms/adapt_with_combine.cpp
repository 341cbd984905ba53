#include "optimizers/algorithms/adapt_with_combine.hpp"

#include <exception>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/parameter.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

namespace {

/// The end of the round before, whose average the step that comes next waits for. If it has failed,
/// that step is made all the same, since other ranks wait in it, and throws when it is over: else
/// one failure would go to and fro between the ranks for ever.
class EarlierRound {
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

}  // namespace

AdaptWithCombine::AdaptWithCombine(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets),
      context_(context),
      averages_(context, values_of(buckets), names_of(buckets)),
      options_(buckets.size()),
      works_(buckets.size()) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    options_[b].name = buckets[b].name();
    options_[b].completion = ops::Completion::OnWait;
  }
}

void AdaptWithCombine::step(const Round& round, const StepBucket& step_bucket) {
  if (round.averaging != Averaging::Neighbors) {
    step_after_average(round, step_bucket);
    return;
  }
  EarlierRound earlier;
  run_round(context_, buckets_.size(), [&](std::size_t& issued) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      earlier.end([&] { combine(b); });
      step_bucket(buckets_[b]);
      options_[b].check = b == 0 ? round.check : ops::PlanCheck::Trusted;
      ++issued;
      works_[b] = ops::neighbor_allreduce_nonblocking(context_, buckets_[b].values(), round.plan,
                                                      options_[b]);
    }
  });
  earlier.rethrow();
}

void AdaptWithCombine::step_after_average(const Round& round, const StepBucket& step_bucket) {
  const std::size_t calls_due = round.averaging == Averaging::Nobody ? 0 : buckets_.size();
  EarlierRound earlier;
  run_round(context_, calls_due, [&](std::size_t& issued) {
    earlier.end([&] { wait_all(works_); });
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
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    earlier.end([&] { combine(b); });
    step_bucket(buckets_[b]);
  }
  earlier.rethrow();
}

void AdaptWithCombine::combine(std::size_t bucket) {
  wait_on_current_stream(std::exchange(works_[bucket], Work()));
  buckets_[bucket].note_change();
}

void AdaptWithCombine::drain() {
  wait_all(works_);
  note_changes(buckets_);
}

AlgorithmRow adapt_with_combine_row() {
  return {
      .name = "adapt_with_combine",
      .aliases = {"awc"},
      .equation = "x ← W x − γ d(x)",
      .description = "The average with the neighbours and the local step from the same parameters.",
      .source = "D-PSGD, arXiv 1705.09056; BlueFog",
      .overlap = "a whole iteration",
      .memory = {.copies = 1,
                 .note = "in shared memory; between hosts also 1 for each neighbour heard"},
      .make = [](AlgorithmParts parts) {
        return std::make_unique<AdaptWithCombine>(parts.context, parts.buckets);
      }};
}

}  // namespace bluefog::optimizers
