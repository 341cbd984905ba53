#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "optimizers/averaging.hpp"
#include "optimizers/bucket.hpp"
#include "optimizers/late_rank.hpp"
#include "optimizers/options.hpp"
#include "optimizers/parameter.hpp"
#include "topology/neighbor_plan.hpp"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

/// Decentralized training of LibTorch models: a distributed optimizer, its algorithms, and what
/// algorithms of one's own stand on.
namespace bluefog::optimizers {

/// A torch optimizer whose steps are one rank's part of decentralized training.
///
/// The wrapped optimizer goes on to hold options, groups and state, and to compute every step;
/// learning rates are changed there. Parameters that require gradients and belong to it are moved
/// into flat buckets (`Bucket`) and exchanged by the chosen algorithm. Frozen parameters are not:
/// they do not change, so they stay equal once `broadcast_parameters` made them so. A parameter
/// without a gradient in some step keeps its value in the local step and takes part in averages.
///
/// All ranks make one for the same model with the same options, and call `step` equally often; with
/// windows (`WinPut`, `PullGet`, `AsyncPushSum`) each as often as it likes. One thread at a time.
/// After the first steps, averages with up to 8 neighbours allocate nothing; gradient all-reduce
/// notes its calls on the heap, and so do windows between hosts.
/// Memory: parameters keep their size (`Bucket`); an algorithm's description names its own memory.
///
/// @code
/// DistributedOptimizer optimizer(context, sgd, *model);
/// optimizer.zero_grad();
/// loss(*model).backward();
/// optimizer.step();
/// @endcode
class DistributedOptimizer {
 public:
  /// Collective. All parameters and buffers of `module`.
  /// @param optimizer, module outlive this object; neither gains nor loses parameters meanwhile.
  /// @throws InvalidArgument naming the parameter if one is sparse, not of a floating dtype, not on
  ///   the CPU, shares memory with another, is the optimizer's and not the module's, or belongs to
  ///   another distributed optimizer (destroy that one before making the next); or for a schedule
  ///   of another size, or one that the algorithm cannot use. Ranks without such a problem get
  ///   PeerFailure.
  /// @throws MismatchError naming the first parameter or option that differs between ranks.
  /// @throws StateError if something else holds the gradient hooks that gradient all-reduce needs.
  DistributedOptimizer(std::shared_ptr<Context> context, torch::optim::Optimizer& optimizer,
                       const torch::nn::Module& module,
                       const DistributedOptimizerOptions& options = {});

  /// The same for the given parameters and buffers.
  DistributedOptimizer(std::shared_ptr<Context> context, torch::optim::Optimizer& optimizer,
                       NamedTensors parameters, const DistributedOptimizerOptions& options = {},
                       NamedTensors buffers = {});

  /// Takes over the other one's training; that one may only be destroyed or assigned to.
  DistributedOptimizer(DistributedOptimizer&&) noexcept;
  /// Ends its own calls as the destructor does, and takes over the other one's training.
  DistributedOptimizer& operator=(DistributedOptimizer&&) noexcept;
  /// Ends the calls in flight; logs their errors. Parameters stay in their buckets' memory.
  ~DistributedOptimizer();

  /// One step of all ranks (with windows: of this one), with the gradients that are there.
  ///
  /// Parameters whose memory was replaced since the last step are taken back into their buckets
  /// first. If it throws, some buckets may have been stepped or averaged and others not; the next
  /// step may be tried, after `restart` if the algorithm carries something from step to step. The
  /// step counts all the same.
  /// @throws InvalidArgument naming the parameter if its dtype, shape or device has changed.
  /// @throws StateError if the wrapped optimizer's groups have changed, or a frozen parameter now
  ///   requires gradients.
  /// @throws MismatchError, PeerFailure, TimeoutError for errors between ranks, as when one of them
  ///   has run out of batches.
  /// @throws StateError, without a call, after a backward pass that has failed in its
  ///   communication: the step has failed with it, and counts. Another backward pass or `zero_grad`
  ///   begins the next.
  void step();

  /// The same with gradients from `closure`, which evaluates the model and its gradients and
  /// returns the loss. It is called once; by LBFGS as often as that likes.
  /// @return the loss.
  /// @throws InvalidArgument for an empty closure, and any error of the closure; the other ranks
  ///   get it in their step.
  at::Tensor step(const Closure& closure);

  /// Clears the gradients: to none, or to zeros, which costs gradient all-reduce more. Between the
  /// steps of one of its rounds nothing happens. With gradient tracking they become zeros.
  void zero_grad(bool set_to_none = true);

  /// Ends the calls in flight, so that parameters hold all averages that they are due. Local.
  void drain();

  /// `drain`, then the buffer policy's work: before evaluation, at the end. Collective if the
  /// policy averages or broadcasts, else local.
  void finish();

  /// The plan of the next communication round, in place of the schedule's. All ranks call it.
  /// @param check whether the ranks' plans are compared before any data moves.
  /// @throws InvalidArgument for a plan of another rank or size, a malformed one, or one that the
  ///   algorithm cannot use (another W in one round; with push-sum weights that the rank does not
  ///   hand out in full; with DecentLaM one that its momentum may not bear); StateError if the
  ///   algorithm has no plans.
  void set_next_plan(NeighborPlan plan, ops::PlanCheck check = ops::PlanCheck::Checked);

  /// The ranks over which communication rounds average from now on; at first the neighbours. All
  /// ranks call it between the same two steps. Between machines each round's plan is set by
  /// `set_next_plan`.
  /// @throws StateError if the algorithm is neither adapt-then-combine nor adapt-with-combine.
  void set_averaging(Averaging averaging);

  /// Counts `count` steps as made whose gradients have been added up: with
  /// `num_steps_per_communication` k, k backward passes may come before one step in place of k
  /// steps. Else a step is one, whatever number of passes comes before it. All ranks call it between
  /// the same two steps.
  /// @throws InvalidArgument if `count` is negative.
  void skip_steps(std::int64_t count);

  /// Forgets what the algorithm carries from step to step: corrections, tracked gradients, push-sum
  /// weights. All ranks call it between the same two steps: after setting parameters to other
  /// values, or after an error between ranks, which leaves corrections that no longer cancel.
  /// Parameters, the wrapped optimizer's state and the counts stay.
  void restart();

  /// Writes the wrapped optimizer's and the algorithm's state and the position in the schedule,
  /// after ending the calls in flight (a run goes on from there exactly as one that resumes does).
  /// Parameters are not written: save the model beside it, or use `save_checkpoint`.
  /// @throws StateError with gradient all-reduce between the steps of one round.
  void save(torch::serialize::OutputArchive& archive);

  /// Whether `archive` is of this algorithm and of this class of wrapped optimizer: what `load`
  /// can refuse before it changes anything. Local.
  /// @throws InvalidArgument naming what was expected and found.
  void check_saved(torch::serialize::InputArchive& archive) const;

  /// Reads what `save` wrote on the same rank of as many ranks. Parameters must have been loaded.
  /// @throws InvalidArgument if it was written with another algorithm, another class of wrapped
  ///   optimizer or other buckets, or is incomplete.
  void load(torch::serialize::InputArchive& archive);

  /// What the algorithm carries from step to step, by name, where it lies (`Algorithm::state`): for
  /// callers that save in a form of their own, after `drain`.
  [[nodiscard]] NamedTensors carried() const;

  /// Whether `resume` can go on from these. Local.
  /// @throws InvalidArgument naming the first tensor that is missing or has another shape or dtype.
  void check_carried(const NamedTensors& carried) const;

  /// Goes on from what `carried` and the counts were on the same rank of as many ranks. The wrapped
  /// optimizer stays as it is; parameters must have been loaded.
  /// @throws InvalidArgument as `check_carried`, or for a count below 0; nothing has changed then.
  void resume(const NamedTensors& carried, std::int64_t step_count, std::int64_t round_count);

  /// Takes no part in the step that all ranks make next, for example without a batch for it: the
  /// others get `reason` as an error in theirs. The step counts as made. Local; nothing is stepped.
  /// Does nothing after a backward pass that has failed in its communication.
  void refuse_step(std::string_view reason);

  /// Collective over the ranks that live, as `Context::shrink`: goes on with them, which `step` does
  /// by itself by `DistributedOptimizerOptions::on_failure`. The context is another one then
  /// (`context`), and the one before has ended, with all of its copies.
  ///
  /// A schedule of the options goes on without the lost ranks (`Schedule::without`), the default one
  /// is made for those that are left. All ranks go on from the same step: those that were behind
  /// pass over the steps up to it. Parameters become their mean over the ranks, with gradient
  /// all-reduce those of the rank that was furthest, and so does the wrapped optimizer's state
  /// there; what else the algorithm carries begins anew, as by `restart`.
  /// @throws UnsupportedError for options with `plans`, which name the ranks that were; and as
  ///   `Context::shrink`. Other calls are StateErrors then.
  void shrink();

  /// The second half of `shrink` and `join`, collective over the ranks of `other`, which
  /// `Context::shrink` or `regroup` of this optimizer's context has made, or of one that it is a copy
  /// of.
  /// @return the lowest of the ranks that were furthest.
  /// @throws MismatchError where a rank that joins has another model or other options: on all ranks,
  ///   before anything has changed but the context.
  int move_to(std::shared_ptr<Context> other);

  /// On a process that waits to join (`Context::is_applicant`): returns when the ranks that train
  /// have taken it in, at the end of one of their steps, a few ahead. It has their mean of the
  /// parameters then, the buffers, optimizer state and learning rates of one of them, and goes on
  /// with the step that they go on with (`step_count`). On them nothing but the context and what it
  /// says changes, and parameters, which become their mean. Elsewhere it does nothing.
  /// @throws MismatchError where the others have another model or other options: they go on without
  ///   this process. @throws StateError as `Context::regroup`.
  void join();

  /// This rank wants to leave, as where its host is to be taken away: with
  /// `DistributedOptimizerOptions::on_failure` Shrink it does so at the end of one of the steps to
  /// come, a few ahead, which all ranks end. Parameters become the mean of all ranks there, this one
  /// included; it then closes its context, and the others go on. Its next calls are StateErrors
  /// (`has_left`). Local. It does nothing where the ranks are to end with the first that is lost.
  void leave();
  /// This rank's program cannot go on, as after an exception, or with a loss that is not finite:
  /// it leaves as by `leave`. Until then it takes part in the others' steps, which find nothing
  /// interrupted, without local steps of its own: its values stay in their averages, and its
  /// gradients count as zeros. Where other calls of theirs need it, it is lost to them there.
  ///
  /// Parameters, or what the algorithm carries, that are not finite are kept from the others: the
  /// rank then leaves at once, as one that is lost. An average of adapt-with-combine that waits may
  /// have told them already: look at the loss before `step`.
  ///
  /// Ends after BLUEFOG_TIMEOUT (600 s where that is never). Throws nothing: what goes wrong is a
  /// line in the log. Not for errors between ranks, after which it could only wait.
  /// @param why a clause, which the others' membership tells of (`Membership::Loss::cause`).
  /// @return whether it has left in good order; else end the program, by which it is lost.
  bool give_up(std::string_view why) noexcept;
  /// Whether this rank has left.
  [[nodiscard]] bool has_left() const noexcept;

  /// Whether the ranks have agreed to meet after this step, to take in a process that waits
  /// (`Context::regroup`), or to see one off. For callers that call `move_to`. Cost: rank 0 looks
  /// five times a second. @param may_be_called whether this optimizer's steps are those after which
  ///   new ranks may begin; false where those of another one are.
  [[nodiscard]] bool meeting_is_due(bool may_be_called = true);
  /// The part of `leave` for such callers that has rank 0 call a meeting.
  void ask_to_leave();
  /// The part of `give_up` for such callers that tells the others, and from which on steps make no
  /// local ones. @return whether all that others would get of this rank is finite.
  [[nodiscard]] bool begin_to_give_up(std::string_view why);
  /// Whether the meeting that is due is to see a rank off.
  [[nodiscard]] bool is_departure() const;
  /// Collective over all ranks, before one of them leaves: parameters become their mean, where the
  /// algorithm averages them.
  void share_before_departure();

  /// The next `count` steps do nothing here, and count already: the other ranks have made them
  /// before. Local.
  /// @throws InvalidArgument if `count` is negative.
  void pass_over(std::int64_t count);

  /// Begins another step after a backward pass that has failed in its communication, as `zero_grad`
  /// does, for callers that clear gradients themselves.
  void forget_lost_step();

  /// Calls of `step` so far. Failed ones count, so that all ranks go on with the same round, whether
  /// or not they hear of a failure.
  [[nodiscard]] std::int64_t step_count() const noexcept;
  /// Calls of `step` that communicated, failed ones too: the number of the next round.
  [[nodiscard]] std::int64_t round_count() const noexcept;

  /// The wrapped optimizer, where learning rates are changed.
  [[nodiscard]] torch::optim::Optimizer& wrapped() const noexcept;
  /// The context of the ranks that train together.
  [[nodiscard]] Context& context() const noexcept;
  /// The same, to be kept: `shrink` makes another one.
  [[nodiscard]] const std::shared_ptr<Context>& shared_context() const noexcept;
  /// The buckets that hold the parameters; the last parameters of the model are in the first one.
  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept;

  /// The neighbours of this rank whose values came late, by rising rank, where the algorithm goes on
  /// without waiting for all of them (`LateRank`). Local.
  [[nodiscard]] std::vector<LateRank> late_ranks() const;

  /// The tensors that the algorithm carries from step to step, by name; views of its own memory.
  [[nodiscard]] NamedTensors algorithm_state() const;

 private:
  class State;
  class Training;
  std::unique_ptr<Training> training_;
};

}  // namespace bluefog::optimizers
