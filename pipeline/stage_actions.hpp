#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bluefog::pipeline {

/// The order of forward and backward passes in a pipeline.
enum class ScheduleKind : std::uint8_t {
  /// All forward passes, then all backward passes: every stage keeps all micro-batches.
  /// Source: GPipe, arXiv 1811.06965.
  GPipe,
  /// A backward pass after each forward pass, once the first gradient has come: stage s of K keeps
  /// at most K − s micro-batches. The same time and the same sums of gradients.
  /// Source: PipeDream-Flush, arXiv 2006.09503.
  OneForwardOneBackward,
};

/// "gpipe", "1f1b".
[[nodiscard]] std::string_view name_of(ScheduleKind kind) noexcept;
/// The schedule of that name. @throws InvalidArgument for another word, with those that there are.
[[nodiscard]] ScheduleKind schedule_named(std::string_view name);

/// The kinds of actions of a stage.
enum class ActionKind : std::uint8_t {
  ReceiveActivation,  ///< waits for the stage before
  Forward,            ///< computes this stage's output, and on the last stage the loss
  SendActivation,     ///< hands the output to the stage behind, without waiting
  ReceiveGradient,    ///< waits for the stage behind
  Backward,           ///< computes gradients of parameters, and of what has been received
  SendGradient,       ///< hands that gradient to the stage before, without waiting
};

/// One action of a stage, on one micro-batch.
struct Action {
  ActionKind kind = ActionKind::Forward;  ///< what is done
  int micro_batch = 0;                    ///< on which of them, from 0

  /// Memberwise.
  friend bool operator==(const Action&, const Action&) = default;
};

/// "forward 3", "receive gradient 0".
[[nodiscard]] std::string describe(const Action& action);

/// The pipeline that a schedule is made for.
struct PipelineShape {
  int stages = 1;         ///< K
  int micro_batches = 1;  ///< M; 0: nothing to do
  /// The first stage with parameters that are trained: those before it have no backward passes, and
  /// it sends no gradient. `stages`: forward passes alone.
  int first_trained = 0;
};

/// The actions of `stage`, in their order. Sums of gradients are formed by rising micro-batch in
/// every schedule, so that all give the same bits.
/// @throws InvalidArgument for no stage, a negative number, or no stage of these.
[[nodiscard]] std::vector<Action> stage_actions(ScheduleKind kind, const PipelineShape& shape,
                                                int stage);

}  // namespace bluefog::pipeline
