#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "optimizers/algorithm.hpp"

namespace bluefog::python {

/// The local steps and calls of one step of an algorithm of Python's: as many calls as all ranks
/// have agreed on. Python may keep it longer than the step lasts: it is of no use then.
///
/// Members are called without the interpreter's lock, by the thread that steps.
class AlgorithmRound {
 public:
  /// @param context, buckets outlive this object; `round`, `step_bucket` the step.
  /// @param round null where the step does not communicate.
  /// @param calls that the step makes, the same on all ranks.
  AlgorithmRound(Context& context, const std::vector<optimizers::Bucket>& buckets,
                 const optimizers::Round* round, const optimizers::StepBucket& step_bucket,
                 std::string algorithm, std::size_t calls);

  /// Steps the parameters of a bucket by the wrapped optimizer.
  /// @throws StateError out of the buckets' order.
  void local_step(std::size_t bucket);

  /// Begins the average of `values` in place, over the ranks of the round or over all.
  /// @return the call's number in the step.
  /// @throws StateError for a call too many, or after the end of the step; InvalidArgument for what
  ///   is not contiguous or not of a floating dtype.
  std::size_t start_average(const at::Tensor& values, bool is_over_all);
  /// Waits for a call. Again and again, too.
  void wait(std::size_t call);

  /// The values of the ranks that this one hears, of any lengths, by rising rank. A call as averages
  /// are.
  [[nodiscard]] std::vector<std::pair<int, at::Tensor>> gather(const at::Tensor& values);

  /// Rounds before this one. @throws StateError after the end of the step.
  [[nodiscard]] std::int64_t index() const { return under_way().index; }
  /// This rank's part of the average; null where the algorithm has none.
  [[nodiscard]] std::shared_ptr<const NeighborPlan> plan() const { return under_way().plan; }

  /// Ends the step: waits for its calls. @throws StateError where a local step or a call is missing.
  void end();
  /// Ends it after an error: peers hear `reason` in the calls that are missing. Does not throw.
  void fail(std::string_view reason) noexcept;

 private:
  [[nodiscard]] const optimizers::Round& under_way() const;
  [[nodiscard]] std::string place() const;
  /// Counts a call of that name as made; its name in messages, equal on all ranks.
  [[nodiscard]] std::string begin_call(std::string_view what);
  /// The check of plans, for the first call with neighbours.
  [[nodiscard]] ops::PlanCheck check_once();
  /// @throws StateError where the round has no neighbours.
  [[nodiscard]] const std::shared_ptr<const NeighborPlan>& neighbors(std::string_view what) const;

  Context& context_;
  const std::vector<optimizers::Bucket>& buckets_;
  const optimizers::Round* round_;
  const optimizers::StepBucket* step_bucket_;
  std::string algorithm_;
  std::size_t call_count_;
  std::size_t issued_ = 0;
  std::size_t stepped_ = 0;
  bool is_checked_ = false;
  bool has_ended_ = false;
  std::vector<Work> works_;
};

}  // namespace bluefog::python
