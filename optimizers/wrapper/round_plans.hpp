#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/averaging.hpp"
#include "optimizers/options.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::optimizers {

/// Decides over whom each communication round averages: the plan that the caller has set, the one
/// that `DistributedOptimizerOptions::plans` makes, or the schedule's.
class RoundPlans {
 public:
  /// @param context, options, algorithm outlive this object. `options.schedule` is there if the
  ///   algorithm averages with neighbours and no plans are made.
  RoundPlans(const Context& context, const DistributedOptimizerOptions& options,
             const Algorithm& algorithm)
      : context_(context), options_(options), algorithm_(algorithm) {}

  /// The next round, which is round `index`; takes the plan that was set.
  /// @throws StateError between machines without such a plan; InvalidArgument for a plan of
  ///   `options.plans` that does not fit.
  [[nodiscard]] Round next(std::int64_t index);

  /// As `DistributedOptimizer::set_next_plan`.
  void set_next(NeighborPlan plan, ops::PlanCheck check);
  /// As `DistributedOptimizer::set_averaging`.
  void set_averaging(Averaging averaging);
  [[nodiscard]] Averaging averaging() const noexcept { return averaging_; }
  /// The next plan need not go on from the last one.
  void forget() noexcept { made_ = nullptr; }

 private:
  /// `plan`, if it is this rank's and the algorithm can use it.
  [[nodiscard]] std::shared_ptr<const NeighborPlan> checked(NeighborPlan plan,
                                                            std::string_view where) const;

  const Context& context_;
  const DistributedOptimizerOptions& options_;
  const Algorithm& algorithm_;
  Averaging averaging_ = Averaging::Neighbors;
  std::shared_ptr<const NeighborPlan> next_;
  ops::PlanCheck next_check_ = ops::PlanCheck::Trusted;
  /// The last round's plan, if the caller made it.
  std::shared_ptr<const NeighborPlan> made_;
};

}  // namespace bluefog::optimizers
