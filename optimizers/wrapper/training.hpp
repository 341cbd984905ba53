#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "optimizers/checks/rate_watch.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/wrapper/distributed_optimizer_state.hpp"
#include "optimizers/wrapper/newcomers.hpp"
#include "optimizers/wrapper/step_meeting.hpp"

namespace bluefog::optimizers {

/// The state of a distributed optimizer with what it is made from: made anew, over the ranks that
/// are left, where one is lost.
class DistributedOptimizer::Training {
 public:
  Training(std::shared_ptr<Context> context, torch::optim::Optimizer& optimizer,
           NamedTensors parameters, const DistributedOptimizerOptions& options,
           NamedTensors buffers);

  /// @throws StateError where it could not be made anew.
  [[nodiscard]] State& state() const;
  /// What is there also without a state.
  [[nodiscard]] const StepCounts& counts() const noexcept {
    return state_ ? state_->counts() : counts_;
  }
  [[nodiscard]] torch::optim::Optimizer& wrapped() const noexcept { return optimizer_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept;
  void set_averaging(Averaging averaging);
  void step();
  at::Tensor step(const Closure& closure);
  void drain();
  void finish();
  void shrink() { go_on(false); }
  void join();
  void leave();
  [[nodiscard]] bool has_left() const noexcept { return leaves_ && !state_; }
  void ask_to_leave() const { StepMeeting::ask(*context_); }
  [[nodiscard]] bool is_departure() const { return StepMeeting::is_departure(*context_); }
  void share_before_departure();
  [[nodiscard]] bool give_up(std::string_view why);
  [[nodiscard]] bool begin_to_give_up(std::string_view why);
  [[nodiscard]] bool meeting_is_due(bool may_be_called = true);
  int move_to(std::shared_ptr<Context> other);

 private:
  /// Whether a lost rank is no error.
  [[nodiscard]] bool goes_on() const;
  /// `work()`; where it ends by a lost rank, and that is no error, goes on without it.
  template <typename Work>
  void survive(Work work);
  /// Has what makes no calls of the engine notice that a rank is lost.
  void look_for_losses() const;
  /// Whether steps wait for nobody, so that ranks make as many as they like.
  [[nodiscard]] bool waits_for_nobody() const;
  /// Whether a rank is lost: a window, or its own word that its step has failed, may come before the
  /// context hears of its end. @param rank the one that an error names; −1: none.
  [[nodiscard]] bool hears_of_loss(int rank) const;
  /// `look_for_losses` at the begin of a step, which counts.
  void begin_step();
  /// Collective over the ranks that live: goes on with them, and with processes that wait, if it
  /// `admits` them.
  void go_on(bool admits);
  /// A step has been made.
  void note_rate();
  /// The end of a step: ranks meet there where one wants to join.
  void end_step();
  /// The parts of `give_up`.
  void step_until_it_has_left();
  void leave_at_once();
  /// For good. @param why a clause.
  void end(std::string why);
  /// The one that goes on over the ranks of `context_`, or begins anew.
  [[nodiscard]] std::optional<Schedule> schedule_now(bool has_grown) const;
  /// Collective. The state anew, from where the ranks go on together. @return the furthest rank.
  int make_state();
  /// Collective: parameters, and what else has to be equal, as they were on the furthest rank, or
  /// their mean.
  void take_common_values(int furthest);
  /// Collective: the optimizer's state of the furthest rank, on all or on newcomers alone.
  void take_state(int furthest);

  std::shared_ptr<Context> context_;
  torch::optim::Optimizer& optimizer_;
  NamedTensors parameters_;
  DistributedOptimizerOptions options_;
  NamedTensors buffers_;
  std::optional<Averaging> averaging_;
  /// Of a state that has ended.
  StepCounts counts_;
  std::int64_t passed_over_ = 0;
  std::unique_ptr<State> state_;
  /// Whether this rank has nothing of the others yet, which it joins.
  bool is_new_;
  /// The ranks of which that is so in the last meeting.
  Newcomers newcomers_{};
  /// The group that this rank has left, from the first `move_to` to the next step: the schedule of one
  /// that does not come about, with a process that cannot join, say, is nobody's.
  struct Former {
    std::vector<int> ranks;  ///< their numbers in the launch
    std::optional<Schedule> schedule;
    std::int64_t growths = 0;
  };
  std::optional<Former> former_{};
  std::int64_t growths_ = 0;  ///< how often the schedule began anew, since ranks were new
  /// Whether this rank leaves at the next meeting.
  bool leaves_ = false;
  /// Why its program cannot go on, where it does so for that; else empty.
  std::string why_it_gives_up_{};
  /// A step is under way, or the last one has failed.
  bool is_in_step_ = false;
  StepMeeting meeting_{};
  RateWatch rates_{};
  /// Why there is no state; empty while there is one.
  std::string end_;
};

}  // namespace bluefog::optimizers
