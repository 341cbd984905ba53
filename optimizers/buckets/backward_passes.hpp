#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "optimizers/rethrow_in_backward.hpp"

namespace bluefog::optimizers {

/// Whether the pass under way on this thread adds to the gradient of `parameter`, as `backward`
/// does, and does not only hand it out, as `grad` does. From a hook of the parameter.
[[nodiscard]] bool accumulates_into(const at::Tensor& parameter);

/// Tells the backward passes that hooks are called in from one another, and when they end.
///
/// Passes that are begun inside of another one count with it: those of reentrant checkpoints, and
/// of hooks that call `backward`. One thread at a time begins passes; LibTorch's threads may run
/// them.
class BackwardPasses {
 public:
  /// @param on_end is called at the end of each pass that was noted and has not failed, before its
  ///   `backward` returns; its exceptions leave `backward`, by `rethrow`. May be empty.
  explicit BackwardPasses(std::function<void()> on_end = {}, RethrowInBackward rethrow = {});
  BackwardPasses(const BackwardPasses&) = delete;
  BackwardPasses& operator=(const BackwardPasses&) = delete;
  ~BackwardPasses();

  struct Noted {
    /// The pass was not noted before.
    bool is_first = false;
    /// The pass under way on this thread was begun inside of another one.
    bool is_inside_another = false;
    /// The first note of a pass, and the pass noted before it has failed.
    bool follows_failure = false;
  };

  /// Notes the pass under way on this thread. From a hook.
  Noted note();

  /// Whether the last pass that was noted ended unseen: one inside of it ended on another thread
  /// than the node that had begun it, as where some nodes run on a device and others do not.
  [[nodiscard]] bool has_lost_end() const;

 private:
  struct Shared;
  class End;
  std::shared_ptr<Shared> shared_;
};

}  // namespace bluefog::optimizers
