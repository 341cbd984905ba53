// Schedules of long periods are compared bit by bit, so that ranks which have others in a late round
// get an error and no average of different matrices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kAtOnce = 64;
constexpr std::int64_t kRoundsOfPeriod = 5000;
constexpr std::int64_t kLookedAt = 256;  // when an optimizer is made

/// The fully connected graph in each round, and a ring in one of them.
class LongSource final : public Schedule::Source {
 public:
  LongSource(int size, std::int64_t other_round) : size_(size), other_round_(other_round) {}

  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::int64_t period_steps() const override { return kRoundsOfPeriod; }
  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override {
    if (phase == failing_round) {
      throw InvalidArgument("no graph for this round");
    }
    return phase == other_round_ ? MixingMatrix::identity(size_) : topology::fully_connected(size_);
  }
  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override {
    return mixing_matrix(phase).plan_for(rank);
  }

  std::int64_t failing_round = -1;

 private:
  int size_;
  std::int64_t other_round_;
};

struct LongRun {
  LongRun(Context& context, std::int64_t other_round, std::int64_t failing_round = -1,
          bool in_backward = false)
      : problem(LeastSquares::of_rank(context.rank())),
        point(0),
        sgd(point.parameters(), 0.01),
        optimizer(context.shared_from_this(), sgd, point,
                  options_of(context, other_round, failing_round, in_backward)) {}

  static optimizers::DistributedOptimizerOptions options_of(Context& context,
                                                            std::int64_t other_round,
                                                            std::int64_t failing_round,
                                                            bool in_backward) {
    auto source = std::make_unique<LongSource>(context.size(), other_round);
    source->failing_round = failing_round;
    optimizers::DistributedOptimizerOptions options;
    options.schedule = Schedule(std::move(source));
    options.step_in_backward = in_backward;
    return options;
  }
  void steps(std::int64_t count) {
    for (std::int64_t step = 0; step < count; ++step) {
      train(optimizer, point, problem);
    }
  }

  LeastSquares problem;
  Point point;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

TEST(LaterRounds, ThatDifferBetweenRanksAreErrorsOfAll) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const bool in_backward : {false, true}) {
      LongRun run(context, context.rank() == 1 ? kAtOnce + 6 : -1, -1, in_backward);
      run.steps(kAtOnce);
      for (int time = 0; time < 2; ++time) {  // each round of these, whoever goes on
        EXPECT_THAT(error_of<MismatchError>([&] { run.steps(1); }),
                    AllOf(HasSubstr("schedule, rounds 64 to 127: expected the same on all ranks; "
                                    "rank 0 has W(70) with rank 0: "),
                          HasSubstr(", rank 1 has W(70) with rank 0: 1 of itself")));
      }
    }
  });
}

TEST(LaterRounds, ThatAreAlikeGoOn) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const bool in_backward : {false, true}) {
      LongRun run(context, 3 * kAtOnce, -1, in_backward);
      run.steps(2 * kAtOnce + 1);
      if (context.rank() == 0) {
        run.optimizer.refuse_step("no batch");
      } else {
        EXPECT_THAT(error_of<PeerFailure>([&] { run.steps(1); }), HasSubstr("no batch"));
      }
      run.steps(kAtOnce - 2);
      EXPECT_EQ(run.optimizer.round_count(), 3 * kAtOnce);
      // A round that is refused where rounds would be compared: ranks go on with the same calls.
      if (context.rank() == 0) {
        run.optimizer.refuse_step("no batch either");
      } else {
        EXPECT_THAT(error_of<PeerFailure>([&] { run.steps(1); }), HasSubstr("no batch either"));
      }
      run.steps(kAtOnce + 1);
    }
  });
}

TEST(LaterRounds, ThatOneRankCannotMakeAreErrorsOfAll) {
  on_ranks(some_ranks(2), [](Context& context) {
    LongRun run(context, -1, context.rank() == 1 ? kLookedAt + 2 : -1);
    run.steps(kLookedAt);
    const auto why = [&] { run.steps(1); };
    if (context.rank() == 1) {
      EXPECT_THAT(error_of<InvalidArgument>(why), HasSubstr("no graph for this round"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>(why),
                  AllOf(HasSubstr("rank 1 refused"), HasSubstr("no graph for this round")));
    }
    run.steps(1);
  });
}

}  // namespace
}  // namespace bluefog::testing
