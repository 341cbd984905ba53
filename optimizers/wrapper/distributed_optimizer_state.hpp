#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/local_step.hpp"
#include "optimizers/wrapper/buffer_sync.hpp"
#include "optimizers/wrapper/held_parameters.hpp"
#include "optimizers/wrapper/round_plans.hpp"
#include "optimizers/wrapper/step_counts.hpp"
#include "optimizers/wrapper/steps/late_errors.hpp"
#include "optimizers/wrapper/steps/later_rounds.hpp"

namespace bluefog::optimizers {

/// The parts of a distributed optimizer and its steps; `DistributedOptimizer` describes each call.
class DistributedOptimizer::State {
 public:
  State(std::shared_ptr<Context> context, torch::optim::Optimizer& optimizer,
        NamedTensors parameters, const DistributedOptimizerOptions& options, NamedTensors buffers);
  ~State();

  void step();
  at::Tensor step(const Closure& closure);
  void zero_grad(bool set_to_none);
  void drain();
  void finish();
  void set_next_plan(NeighborPlan plan, ops::PlanCheck check) {
    plans_->set_next(std::move(plan), check);
  }
  void set_averaging(Averaging averaging) { plans_->set_averaging(averaging); }
  void skip_steps(std::int64_t count);
  void restart();
  void save(torch::serialize::OutputArchive& archive);
  void check_saved(torch::serialize::InputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);
  [[nodiscard]] NamedTensors carried() const { return algorithm_->state(); }
  void check_carried(const NamedTensors& carried) const {
    check_state(carried, algorithm_->state());
  }
  void resume(const NamedTensors& carried, std::int64_t step_count, std::int64_t round_count);
  void refuse_step(std::string_view reason);
  void pass_over(std::int64_t count);
  /// From now on steps make no local ones: this rank takes part in the others' alone.
  void rest() noexcept { rests_ = true; }
  void forget_lost_step() { algorithm_->forget_lost_step(); }

  /// That of the first group of parameters.
  [[nodiscard]] double learning_rate() const { return options_.learning_rate(); }
  [[nodiscard]] const StepCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] bool averages_with_neighbors() const noexcept {
    return algorithm_->averages_with_neighbors();
  }
  [[nodiscard]] std::int64_t passed_over() const noexcept { return passed_over_; }
  [[nodiscard]] torch::optim::Optimizer& wrapped() const noexcept { return optimizer_; }
  [[nodiscard]] Context& context() const noexcept { return *context_; }
  [[nodiscard]] const std::shared_ptr<Context>& shared_context() const noexcept { return context_; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept {
    return parameters_->buckets();
  }
  [[nodiscard]] NamedTensors algorithm_state() const { return algorithm_->state(); }
  [[nodiscard]] std::vector<LateRank> late_ranks() const { return algorithm_->late_ranks(); }

 private:
  void log_end(const std::exception& error) const noexcept;
  void check_before_step();
  const Round* begin_in_backward();
  void take_step();
  /// @throws StateError unless it is the bucket behind those that this step has stepped.
  void note_stepped(const Bucket& bucket);
  /// @throws StateError unless this step has stepped all buckets.
  void check_stepped(bool communicates) const;
  void end_step();
  /// A method of the algorithm begins, whose errors `note_error` is told of.
  void begin_method() {
    if (late_errors_) {
      late_errors_->begin();
    }
  }
  /// The exception under way has left a method of the algorithm: the others hear of it in any case.
  void note_error(std::string_view method) noexcept;
  /// The backward pass that comes next belongs to a round, or not.
  void expect_next();
  /// The calls of the next step have been refused.
  void forget_round();

  /// Whether the next step is a round, and not passed over.
  [[nodiscard]] bool communicates_next() const noexcept {
    return passed_over_ == 0 && counts_.communicates_next();
  }
  /// Calls that the other ranks expect of this rank's next step.
  [[nodiscard]] std::size_t calls_due() const {
    return communicates_next() && !has_refused_next() ? calls_of(counts_.rounds()) : 0;
  }
  /// The calls of that round, the algorithm's next one.
  [[nodiscard]] std::size_t calls_of(std::int64_t round) const {
    const bool is_average = plans_->averaging() != Averaging::Nobody;
    return (is_average ? algorithm_->calls_due() : 0) + (compares_before(round) ? 1 : 0) +
           buffers_.calls_due();
  }
  /// Whether ranks compare their schedules before that round.
  [[nodiscard]] bool compares_before(std::int64_t round) const {
    return later_rounds_ && plans_->averaging() != Averaging::Nobody &&
           later_rounds_->is_due(round);
  }
  /// The calls of the next round are refused: none of them compares schedules.
  void pass_over_comparison() {
    if (compares_before(counts_.rounds())) {
      later_rounds_->pass_over(counts_.rounds());
    }
  }
  [[nodiscard]] bool has_refused_next() const noexcept {
    return late_errors_ && late_errors_->is_pending();
  }
  /// Gradients add up between the steps of one round of gradient all-reduce.
  [[nodiscard]] bool sums_gradients() const {
    return row_of(options_.algorithm).sums_gradients && counts_.is_between_rounds();
  }

  std::shared_ptr<Context> context_;
  torch::optim::Optimizer& optimizer_;
  DistributedOptimizerOptions options_;
  BufferSync buffers_;
  /// Made once, when the ranks have agreed on the model.
  std::optional<HeldParameters> parameters_;
  std::optional<LocalStep> local_step_;
  StepBucket step_bucket_;
  std::unique_ptr<Algorithm> algorithm_;
  /// Made once, after the algorithm.
  std::optional<RoundPlans> plans_;
  /// There for algorithms from outside the library: its own ones account for all of their calls.
  std::optional<LateErrors> late_errors_;
  /// There for schedules that ranks have not compared as a whole.
  std::optional<LaterRounds> later_rounds_;
  StepCounts counts_;
  /// Steps to come that do nothing and count already.
  std::int64_t passed_over_ = 0;
  bool is_stepping_ = false;
  bool rests_ = false;
  /// Buckets that the step under way has stepped, in its backward pass too.
  std::size_t stepped_buckets_ = 0;
  /// The round of the step that comes, if its backward pass has begun it.
  std::optional<Round> begun_round_;
};

}  // namespace bluefog::optimizers
