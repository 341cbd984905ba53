#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "optimizers/bucket.hpp"

namespace torch::optim {
class Optimizer;
}

namespace bluefog::optimizers {

/// Evaluates the model and its gradients again, and returns the loss.
using Closure = std::function<at::Tensor()>;

/// How the wrapped optimizer is stepped.
enum class Stepping : std::uint8_t {
  /// One bucket after the other if the optimizer can be stepped so (LBFGS cannot), else whole.
  Auto,
  /// One bucket after the other, so that a bucket travels while the next is stepped. The optimizer
  /// must treat each parameter by itself.
  ByBucket,
  /// All parameters in one call, before the first bucket travels.
  Whole,
};

/// How often the wrapped optimizer evaluates the gradients in one step.
enum class Evaluation : std::uint8_t {
  /// As its class does: LBFGS several times, torch's others once.
  ByClass,
  /// Several times, as optimizers of callers may.
  Repeated,
};

/// True if the optimizer evaluates the gradients several times in one step.
[[nodiscard]] bool reevaluates(const torch::optim::Optimizer& optimizer, Evaluation evaluation);

/// Steps a torch optimizer for the parameters of one bucket at a time.
///
/// For the time of a bucket's step the optimizer's groups hold that bucket's parameters only;
/// their options and all state stay in place.
class LocalStep {
 public:
  /// @param optimizer outlives this object.
  LocalStep(torch::optim::Optimizer& optimizer, const std::vector<Bucket>& buckets,
            Stepping stepping, Evaluation evaluation);

  /// True if the optimizer evaluates the closure itself, several times a step (LBFGS).
  [[nodiscard]] bool needs_closure() const noexcept { return needs_closure_; }

  /// The closure that the next whole step hands to the optimizer.
  void set_closure(Closure closure) { closure_ = std::move(closure); }
  /// The loss that the last whole step returned.
  [[nodiscard]] const at::Tensor& loss() const noexcept { return loss_; }

  /// Steps the parameters of `bucket`. An optimizer that is stepped as a whole steps all parameters
  /// with the first bucket, and none with the others.
  void operator()(const Bucket& bucket);

  /// @throws StateError if groups or parameters were added to the optimizer or taken from it since
  ///   this object was made.
  void check_unchanged() const;

 private:
  using Groups = std::vector<std::vector<at::Tensor>>;

  void step_bucket(Groups& part);
  void step_whole();

  torch::optim::Optimizer* optimizer_;
  bool needs_closure_ = false;
  bool whole_ = false;
  Closure closure_;
  at::Tensor loss_;
  /// The parameters that take part, by bucket and group.
  std::vector<Groups> parts_;
  /// All parameters by group, as found at the start.
  std::vector<std::vector<const void*>> expected_;
};

}  // namespace bluefog::optimizers
