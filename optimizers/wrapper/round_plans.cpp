#include "optimizers/wrapper/round_plans.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/registry/algorithm_choice.hpp"

namespace bluefog::optimizers {

Round RoundPlans::next(std::int64_t index) {
  Round round{
      .plan = nullptr, .check = ops::PlanCheck::Trusted, .index = index, .averaging = averaging_};
  if (averaging_ == Averaging::Everybody || averaging_ == Averaging::Nobody) {
    next_ = nullptr;
    return round;
  }
  if (averaging_ == Averaging::Machines && !next_) {
    throw StateError(
        fmt::format("rank {}: expected a plan for this round between machines, from set_next_plan",
                    context_.rank()));
  }
  if (next_) {
    round.plan = made_ = std::exchange(next_, nullptr);
    round.check = next_check_;
  } else if (algorithm_.averages_with_neighbors() && options_.plans) {
    round.plan = made_ = checked(options_.plans(index), "plans");
    round.check = options_.plan_check;
  } else if (algorithm_.averages_with_neighbors()) {
    round.plan = options_.schedule->plan_for(context_.rank(), index);
    made_ = nullptr;
  }
  return round;
}

std::shared_ptr<const NeighborPlan> RoundPlans::checked(NeighborPlan plan,
                                                        std::string_view where) const {
  plan.validate();
  const MachineLayout& machines = context_.machines();
  const bool is_of_machines = averaging_ == Averaging::Machines;
  const int rank = is_of_machines ? machines.machine_of(context_.rank()) : context_.rank();
  const int size = is_of_machines ? machines.machine_count() : context_.size();
  if (plan.rank != rank || plan.size != size) {
    throw InvalidArgument(fmt::format(
        "rank {}, {}: expected the plan of {} {} of {}, found that of {} of {}", context_.rank(),
        where, is_of_machines ? "machine" : "rank", rank, size, plan.rank, plan.size));
  }
  const std::string problem = why_unfit(options_, plan, made_.get());
  if (!problem.empty()) {
    throw InvalidArgument(fmt::format("rank {}, {}: {}", context_.rank(), where, problem));
  }
  return std::make_shared<const NeighborPlan>(std::move(plan));
}

void RoundPlans::set_next(NeighborPlan plan, ops::PlanCheck check) {
  if (!algorithm_.averages_with_neighbors()) {
    throw StateError(fmt::format("rank {}, set_next_plan: {} does not average with neighbours",
                                 context_.rank(), name_of(options_.algorithm)));
  }
  next_ = checked(std::move(plan), "set_next_plan");
  next_check_ = check;
}

void RoundPlans::set_averaging(Averaging averaging) {
  if (averaging > Averaging::Nobody) {
    throw InvalidArgument(
        fmt::format("rank {}, set_averaging: expected a value of Averaging, found {}",
                    context_.rank(), static_cast<int>(averaging)));
  }
  if (!algorithm_.allows_other_averages() && averaging != Averaging::Neighbors) {
    throw StateError(fmt::format(
        "rank {}, set_averaging: expected adapt_then_combine or adapt_with_combine, found {}",
        context_.rank(), name_of(options_.algorithm)));
  }
  if (averaging != averaging_) {
    next_ = nullptr;
    averaging_ = averaging;
  }
}

}  // namespace bluefog::optimizers
