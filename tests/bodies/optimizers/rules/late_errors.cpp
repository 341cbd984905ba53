// Errors of an algorithm from outside the library that come after the last call of a round reach all
// ranks in their next round, and leave no rank a call apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmParts;
using optimizers::AlgorithmRow;
using optimizers::Bucket;
using optimizers::DistributedOptimizer;
using optimizers::StepBucket;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kLateRate = 0.05;
enum Method : std::uint8_t { kStep, kStepAlone, kRestart };
const std::vector<std::string> kMethodNames{"step", "step_alone", "restart"};

/// Adapt-then-combine that fails on rank 1, once, at the end of one of its methods.
class Careless final : public optimizers::Algorithm {
 public:
  Careless(const AlgorithmParts& parts, Method failing, int fails_after)
      : Algorithm(parts.buckets),
        averages_(parts.context, optimizers::values_of(parts.buckets),
                  optimizers::names_of(parts.buckets)),
        failing_(failing),
        left_(parts.context.rank() == 1 ? fails_after : -1) {}

  void step(const optimizers::Round& round, const StepBucket& step_bucket) override {
    averages_.run(round, [&](std::size_t b) { step_bucket(buckets_[b]); });
    optimizers::note_changes(buckets_);
    end(kStep);
  }
  void step_alone(const StepBucket& step_bucket) override {
    Algorithm::step_alone(step_bucket);
    end(kStepAlone);
  }
  void restart() override { end(kRestart); }

 private:
  void end(Method method) {
    if (method == failing_ && left_-- == 0) {
      throw std::runtime_error("a table is full");
    }
  }

  optimizers::NeighborAverages averages_;
  Method failing_;
  int left_;
};

void register_careless() {
  if (optimizers::find_algorithm("careless") == nullptr) {
    AlgorithmRow row;
    row.name = "careless";
    row.equation = "x ← x";
    row.description = "Throws where it is told to.";
    row.options = {{.name = "method", .default_value = std::int64_t{0}, .meaning = "that fails"},
                   {.name = "after", .default_value = std::int64_t{0}, .meaning = "calls of it"}};
    row.make = [](const AlgorithmParts& parts) {
      return std::make_unique<Careless>(
          parts, static_cast<Method>(static_cast<int>(parts.number("method"))),
          static_cast<int>(parts.number("after")));
    };
    optimizers::register_algorithm(row);
  }
}

struct CarelessRun {
  CarelessRun(Context& of_ranks, Method method, int after, std::int64_t period)
      : context(of_ranks),
        problem(LeastSquares::of_rank(of_ranks.rank())),
        point(static_cast<std::uint64_t>(of_ranks.rank())),
        sgd(point.parameters(), kLateRate),
        optimizer(of_ranks.shared_from_this(), sgd, point, options_of(method, after, period)) {}

  optimizers::DistributedOptimizerOptions options_of(Method method, int after,
                                                     std::int64_t period) const {
    auto options = full_averaging(context, "careless");
    options.num_steps_per_communication = period;
    options.numbers = {{"method", static_cast<double>(method)}, {"after", after}};
    return options;
  }
  void steps(std::int64_t count) {
    for (std::int64_t step = 0; step < count; ++step) {
      train(optimizer, point, problem);
    }
  }
  /// On rank 1 the error leaves the call; the others do not hear of it yet.
  template <typename Call>
  void fail(Call&& call) {
    if (context.rank() == 1) {
      EXPECT_EQ(error_of<std::runtime_error>(call), "a table is full");
    } else {
      call();
    }
  }
  void expect_failed_round(Method method) {
    const std::string reason = "rank 1, careless, " + kMethodNames.at(method) + ": a table is full";
    if (context.rank() == 1) {
      EXPECT_THAT(error_of<StateError>([&] { steps(1); }),
                  AllOf(HasSubstr("rank 1, careless, round "),
                        HasSubstr("expected no error since the round before"), HasSubstr(reason)));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { steps(1); }),
                  HasSubstr(reason + " (after its last call before this round)"));
    }
  }
  /// Rounds average over all ranks, so that all have one model after them.
  void expect_common_rounds(std::int64_t period) {
    steps(2 * period);
    EXPECT_NEAR(squared_distance(context, point.x(), average_of_all()), 0.0, kRounding);
  }
  at::Tensor average_of_all() {
    Bag bag;
    const at::Tensor x = bag.add("x", point.x().clone());
    optimizers::allreduce_parameters(context, bag);
    return x.detach();
  }

  Context& context;
  LeastSquares problem;
  Point point;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

TEST(LateErrors, OfAStepAreHeardInTheNextRound) {
  register_careless();
  on_ranks(some_ranks(2), [](Context& context) {
    for (const std::int64_t period : {1, 3}) {
      CarelessRun run(context, kStep, 1, period);
      run.steps(2 * period - 1);
      run.fail([&] { run.steps(1); });
      EXPECT_EQ(run.optimizer.step_count(), 2 * period);
      run.steps(period - 1);
      run.expect_failed_round(kStep);
      EXPECT_EQ(run.optimizer.step_count(), 3 * period);
      run.optimizer.restart();
      run.expect_common_rounds(period);
    }
  });
}

TEST(LateErrors, OfAStepAloneAreHeardInTheNextRound) {
  register_careless();
  on_ranks(some_ranks(2), [](Context& context) {
    CarelessRun run(context, kStepAlone, 0, 3);
    run.fail([&] { run.steps(1); });
    run.steps(1);
    run.expect_failed_round(kStepAlone);
    run.expect_common_rounds(3);
  });
}

TEST(LateErrors, OfARestartAreHeardInTheNextRound) {
  register_careless();
  on_ranks(some_ranks(2), [](Context& context) {
    CarelessRun run(context, kRestart, 0, 1);
    run.steps(1);
    run.fail([&] { run.optimizer.restart(); });
    run.expect_failed_round(kRestart);
    run.expect_common_rounds(1);
  });
}

/// The round that fails is the one that this rank refuses.
TEST(LateErrors, AreToldOnceWhereTheRankRefusesItsStep) {
  register_careless();
  on_ranks(some_ranks(2), [](Context& context) {
    CarelessRun run(context, kStep, 0, 1);
    run.fail([&] { run.steps(1); });
    if (context.rank() == 1) {
      run.optimizer.refuse_step("no batch");
    } else {
      run.expect_failed_round(kStep);
    }
    run.expect_common_rounds(1);
  });
}

}  // namespace
}  // namespace bluefog::testing
