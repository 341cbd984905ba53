// Adapt-then-combine whose rounds begin in the backward pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::Averaging;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kStep = 0.05;

DistributedOptimizerOptions in_backward(const Context& context, bool early = true) {
  DistributedOptimizerOptions options;
  options.schedule = topology::one_peer_exponential(context.size());
  options.bucket_bytes = 32;  // a bucket for each parameter of `Point`
  options.step_in_backward = early;
  return options;
}

torch::optim::SGDOptions with_momentum() { return torch::optim::SGDOptions(kStep).momentum(0.9); }

/// Two models that are trained alike, one of them with rounds that begin in the backward pass.
struct Twins {
  explicit Twins(Context& context, std::int64_t steps_per_round = 1)
      : problem(LeastSquares::of_rank(context.rank())),
        early_sgd(early.parameters(), with_momentum()),
        late_sgd(late.parameters(), with_momentum()),
        early_optimizer(context.shared_from_this(), early_sgd, early,
                        options(context, steps_per_round, true)),
        late_optimizer(context.duplicate(), late_sgd, late,
                       options(context, steps_per_round, false)) {}

  static DistributedOptimizerOptions options(const Context& context, std::int64_t steps_per_round,
                                             bool early) {
    DistributedOptimizerOptions options = in_backward(context, early);
    options.num_steps_per_communication = steps_per_round;
    return options;
  }

  void expect_same_step() {
    train(early_optimizer, early, problem);
    train(late_optimizer, late, problem);
    EXPECT_SAME(early.x(), late.x());
  }

  LeastSquares problem;
  Point early{0};
  Point late{0};
  torch::optim::SGD early_sgd;
  torch::optim::SGD late_sgd;
  DistributedOptimizer early_optimizer;
  DistributedOptimizer late_optimizer;
};

TEST(InBackward, StepsAreThoseOfAdaptThenCombine) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const std::int64_t steps_per_round : {1, 3}) {
      Twins twins(context, steps_per_round);
      for (int step = 0; step < 7; ++step) {
        twins.expect_same_step();
      }
      EXPECT_EQ(twins.early_optimizer.round_count(), 7 / steps_per_round);
      for (const Averaging averaging :
           {Averaging::Everybody, Averaging::Nobody, Averaging::Neighbors}) {
        twins.early_optimizer.set_averaging(averaging);
        twins.late_optimizer.set_averaging(averaging);
        twins.expect_same_step();
      }
    }
  });
}

TEST(InBackward, TheBackwardPassStepsAndSends) {
  on_ranks(some_ranks(), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizerOptions options = in_backward(context);
    options.schedule = topology::static_schedule(topology::ring(context.size()));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    const at::Tensor x = starting_points(context.size(), Start::Equal);
    const at::Tensor expected =
        dense(topology::ring(context.size())).mm(x - kStep * gradients(x))[context.rank()];
    problem.loss(point.x()).backward();
    optimizer.drain();
    EXPECT_CLOSE(point.x(), expected);
    optimizer.step();
    EXPECT_CLOSE(point.x(), expected);
    EXPECT_EQ(optimizer.round_count(), 1);
  });
}

TEST(InBackward, WhatGetsNoGradientWaitsForTheStep) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    const double rank = context.rank();
    const at::Tensor used = bag.add("used", filled({20}, rank));
    const at::Tensor unused = bag.add("unused", filled({20}, 10 * rank));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizerOptions options = full_averaging(context, AlgorithmName::AdaptThenCombine);
    options.step_in_backward = true;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
    optimizer.zero_grad();
    used.sum().backward();
    optimizer.step();
    EXPECT_SAME(used, filled({20}, mean_rank(context) - 1));
    EXPECT_SAME(unused, filled({20}, 10 * mean_rank(context)));
  });
}

TEST(InBackward, ParametersThatWereGivenOtherMemoryAreTakenBackByTheStep) {
  on_ranks(some_ranks(), [](Context& context) {
    Twins twins(context);
    twins.expect_same_step();
    twins.early.first.set_data(twins.early.first.detach().clone());
    twins.expect_same_step();
    twins.expect_same_step();
  });
}

TEST(InBackward, ASecondPassBeforeTheStepIsRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    Twins twins(context);
    twins.early_optimizer.zero_grad();
    twins.problem.loss(twins.early.x()).backward();
    try {
      twins.problem.loss(twins.early.x()).backward();
      ADD_FAILURE() << "expected an error";
    } catch (const StateError& error) {
      EXPECT_THAT(error.what(), HasSubstr("expected one backward pass for each step"));
    }
    twins.early_optimizer.step();  // ends the round
    twins.problem.loss(twins.early.x()).backward();
    twins.early_optimizer.restart();  // in place of the step
    train(twins.early_optimizer, twins.early, twins.problem);
    EXPECT_EQ(twins.early_optimizer.round_count(), 3);
  });
}

TEST(InBackward, AFailureInTheMiddleIsHeardByTheOtherAndLeavesRanksInStep) {
  Ranks two = some_ranks(2);
  two.at_most = 2;  // with one peer a round, others may not hear of it
  on_ranks(two, [](Context& context) {
    Twins twins(context);
    twins.expect_same_step();
    bool fails = context.rank() == 0;
    twins.early.second.register_hook([&fails](const at::Tensor& gradient) {
      if (std::exchange(fails, false)) {
        throw std::runtime_error("no gradient");
      }
      return gradient;
    });
    try {
      twins.early_optimizer.step([&] {
        twins.early_optimizer.zero_grad();
        at::Tensor loss = twins.problem.loss(twins.early.x());
        loss.backward();
        return loss;
      });
      ADD_FAILURE() << "expected an error";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("no gradient"));
    }
    meet(context);
    twins.early_optimizer.restart();
    for (int step = 0; step < 3; ++step) {
      train(twins.early_optimizer, twins.early, twins.problem);
    }
    EXPECT_EQ(twins.early_optimizer.round_count(), 5);
  });
}

TEST(InBackward, APlanThatCannotBeMadeIsHeardByTheOthers) {
  on_ranks(some_ranks(2), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizerOptions options = in_backward(context);
    options.schedule.reset();
    bool fails = context.rank() == 0;
    options.plans = [&](std::int64_t /*round*/) {
      if (std::exchange(fails, false)) {
        throw std::runtime_error("no plan");
      }
      return topology::fully_connected(context.size()).plan_for(context.rank());
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    try {
      train(optimizer, point, problem);
      ADD_FAILURE() << "expected an error";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("no plan"));
    }
    meet(context);
    for (int step = 0; step < 3; ++step) {
      train(optimizer, point, problem);
    }
    EXPECT_EQ(optimizer.round_count(), 4);
  });
}

// Python's caller rethrows so: its errors pass through torch's engine.
TEST(InBackward, WhatLeavesABackwardPassMayBeAnotherError) {
  class Renamed : public std::exception {};
  on_ranks(some_ranks(2), [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("x", filled({4, 2}, 1));
    torch::optim::SGD sgd(bag.parameters(), kStep);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::GradientAllreduce;
    std::string seen;
    options.rethrow_in_backward = [&seen](const std::exception_ptr& error) {
      seen = error_of<Error>([&] { std::rethrow_exception(error); });
      throw Renamed();
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
    // The peer's error arrives at the end of the pass.
    if (context.rank() == 0) {
      optimizer.refuse_step("not now");
    } else {
      EXPECT_THROW(x.sum().backward(), Renamed);
      EXPECT_THAT(seen, HasSubstr("not now"));
    }
    meet(context);
    optimizer.zero_grad();
    sgd.zero_grad();
    // The sparse gradient is refused in a hook.
    const at::Tensor looked_up =
        at::embedding(x, torch::tensor({1, 2}), -1, false, /*sparse=*/true);
    EXPECT_THROW(looked_up.sum().backward(), Renamed);
    EXPECT_THAT(seen, HasSubstr("dense"));
  });
}

// A step after a failed backward pass would be one call more than the other ranks make.
void expect_lost_step(DistributedOptimizer& optimizer) {
  EXPECT_THAT(error_of<StateError>([&] { optimizer.step(); }),
              HasSubstr("rank 0, step: expected a backward pass since the one that failed"));
  EXPECT_EQ(optimizer.step_count(), 1);
}

TEST(InBackward, AfterMeansThatDidNotComeTheStepMakesNoCall) {
  on_ranks({.at_least = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("x", filled({3}, 1));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::GradientAllreduce;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
    if (context.rank() == 1) {
      optimizer.refuse_step("no batch");
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { x.sum().backward(); }), HasSubstr("no batch"));
      if (context.rank() == 0) {
        expect_lost_step(optimizer);
      } else {
        optimizer.refuse_step("it has failed already");
      }
    }
    optimizer.zero_grad();
    (x.sum() * context.rank()).backward();
    optimizer.step();
    EXPECT_SAME(x, filled({3}, 1 - mean_rank(context)));
  });
}

TEST(InBackward, AfterARoundThatCouldNotBeginTheStepMakesNoCall) {
  on_ranks({.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("x", filled({3}, 1));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizerOptions options = full_averaging(context, AlgorithmName::AdaptThenCombine);
    options.step_in_backward = true;
    const Schedule schedule = *std::exchange(options.schedule, std::nullopt);
    options.plans = [&](std::int64_t round) {
      if (context.rank() == 0 && round == 0) {
        throw StateError("no plan");
      }
      return *schedule.plan_for(context.rank(), round);
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
    if (context.rank() == 0) {
      EXPECT_THAT(error_of<StateError>([&] { x.sum().backward(); }), HasSubstr("no plan"));
      expect_lost_step(optimizer);
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] {
                    x.sum().backward();
                    optimizer.step();
                  }),
                  HasSubstr("no plan"));
    }
    optimizer.zero_grad();
    {
      const torch::NoGradGuard no_grad;
      x.fill_(context.rank());
    }
    x.sum().backward();
    optimizer.step();
    EXPECT_SAME(x, filled({3}, 0.5 - 1.0));
  });
}

TEST(InBackward, ZeroGradClearsWhatWasThereBeforeTheOptimizer) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const std::int64_t period : {1, 2}) {
      Bag bag;
      const at::Tensor x = bag.add("x", filled({3}, 1));
      x.sum().backward();
      torch::optim::SGD sgd(bag.parameters(), 1.0);
      DistributedOptimizerOptions options;
      options.algorithm = AlgorithmName::GradientAllreduce;
      options.num_steps_per_communication = period;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
      optimizer.zero_grad();
      for (std::int64_t pass = 0; pass < period; ++pass) {
        x.sum().backward();
        optimizer.step();
      }
      EXPECT_SAME(x, filled({3}, 1.0 - static_cast<double>(period)));
    }
  });
}

TEST(InBackward, OptionsThatDoNotGoTogetherAreRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    torch::optim::LBFGS lbfgs(point.parameters());
    const auto message = [&](torch::optim::Optimizer& optimizer,
                             const std::function<void(DistributedOptimizerOptions&)>& change) {
      DistributedOptimizerOptions options = in_backward(context);
      change(options);
      try {
        const DistributedOptimizer refused(context.shared_from_this(), optimizer, point, options);
        return std::string("no error");
      } catch (const InvalidArgument& error) {
        return std::string(error.what());
      }
    };
    EXPECT_THAT(message(sgd, [](auto& o) { o.algorithm = AlgorithmName::AdaptWithCombine; }),
                HasSubstr("step_in_backward: expected adapt_then_combine, found "
                          "adapt_with_combine"));
    EXPECT_THAT(message(sgd, [](auto& o) { o.stepping = optimizers::Stepping::Whole; }),
                HasSubstr("stepped by bucket"));
    EXPECT_THAT(message(lbfgs, [](auto&) {}), HasSubstr("stepped by bucket"));
  });
}

}  // namespace
}  // namespace bluefog::testing
