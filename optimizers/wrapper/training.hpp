#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/wrapper/distributed_optimizer_state.hpp"

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
  void step();
  at::Tensor step(const Closure& closure);
  void shrink();
  void move_to(std::shared_ptr<Context> smaller);

 private:
  /// Whether a lost rank is no error.
  [[nodiscard]] bool goes_on() const;
  /// `work()`; where it ends by a lost rank, and that is no error, goes on without it.
  template <typename Work>
  void survive(Work work);
  /// Has a step without calls of the engine notice that a rank is lost.
  void look_for_losses() const;
  /// Collective. The state anew, from where the ranks go on together.
  void make_state();
  /// Collective: parameters, and what else has to be equal, as they were on the furthest rank, or
  /// their mean.
  void take_common_values(int furthest);

  std::shared_ptr<Context> context_;
  torch::optim::Optimizer& optimizer_;
  NamedTensors parameters_;
  DistributedOptimizerOptions options_;
  NamedTensors buffers_;
  std::unique_ptr<State> state_;
  /// The counts of a state that has ended.
  std::int64_t steps_ = 0;
  std::int64_t rounds_ = 0;
  /// Why there is no state; empty while there is one.
  std::string end_;
};

}  // namespace bluefog::optimizers
