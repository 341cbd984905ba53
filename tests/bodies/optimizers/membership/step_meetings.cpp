// The steps at whose end ranks meet, to take in a process or to see one off.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "optimizers/algorithm_name.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;

constexpr double kMeetersRate = 0.02;
constexpr int kMeeters = 3;

// Numbers of steps say nothing there, and whoever has made few of them would never come.
TEST(StepMeetings, RanksOfOtherSpeedsMeetWhereNobodyWaits) {
  constexpr int kStepsBefore = 200;
  for (const bool leaves : {false, true}) {
    std::atomic<bool> is_ahead = false;
    const auto body = [&](Context& context) {
      const bool joins = context.is_applicant();
      const int own = context.rank();
      const Point point(static_cast<std::uint64_t>(own));
      torch::optim::SGD sgd(point.parameters(), kMeetersRate);
      DistributedOptimizerOptions options;
      options.algorithm = AlgorithmName::WinPut;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      const LeastSquares problem = LeastSquares::of_rank(own);
      while (joins && !is_ahead) {
        std::this_thread::yield();
      }
      optimizer.join();
      while (!joins && !optimizer.has_left() && optimizer.context().membership().epoch == 0) {
        train(optimizer, point, problem);
        if (own == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(is_ahead ? 10 : 100));
        } else if (optimizer.step_count() == kStepsBefore) {
          is_ahead = true;
          if (leaves) {
            optimizer.leave();
          }
        }
      }
      EXPECT_EQ(optimizer.has_left(), leaves && own == 0);
      if (!optimizer.has_left()) {
        EXPECT_EQ(optimizer.context().size(), leaves ? 1 : 3);
        EXPECT_TRUE(own == 0 || optimizer.step_count() < kStepsBefore) << optimizer.step_count();
      }
    };
    with_applicants(2, body, leaves ? 0 : 1, body);
  }
}

// Ranks that are ahead would wait at the end of the round for those that have met before it.
TEST(StepMeetings, AmongLocalStepsTheyAreAtTheEndOfARound) {
  constexpr int kLength = 20;
  std::vector<at::Tensor> values(kMeeters);
  const auto body = [&values](Context& context) {
    const int own = context.rank();
    const Point point(static_cast<std::uint64_t>(own));
    torch::optim::SGD sgd(point.parameters(), kMeetersRate);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::LocalSgd;
    options.num_steps_per_communication = kLength;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    const LeastSquares problem = LeastSquares::of_rank(own);
    while (!optimizer.has_left() && optimizer.context().size() == kMeeters) {
      if (own == 1 && optimizer.step_count() == kLength + 1) {
        optimizer.leave();
      }
      train(optimizer, point, problem);
      std::this_thread::sleep_for(std::chrono::milliseconds(own == 0 ? 5 : 0));
    }
    EXPECT_EQ(optimizer.step_count() % kLength, 0) << optimizer.step_count();
    values[static_cast<std::size_t>(own)] = point.x().detach().clone();
  };
  with_applicants(kMeeters, body, 0, {});
  EXPECT_CLOSE(values[0], values[1]);
  EXPECT_CLOSE(values[2], values[1]);
}

// The meeting for a process that joins is none in which a rank leaves, whose values would be missing.
TEST(StepMeetings, WhoWantsToLeaveMeanwhileDoesSoAtAMeetingOfItsOwn) {
  at::Tensor mean = at::zeros_like(Point(0).x());
  for (int rank = 0; rank < kMeeters; ++rank) {
    mean += Point(static_cast<std::uint64_t>(rank)).x() / kMeeters;
  }
  const auto body = [&mean](Context& context) {
    const bool joins = context.is_applicant();
    const bool leaves = !joins && context.rank() == 1;
    const Point point(joins ? 77 : static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), 0.0);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::LocalSgd;
    options.num_steps_per_communication = 1 << 20;  // ranks stay apart, and make no call
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    const LeastSquares problem = LeastSquares::of_rank(0);
    optimizer.join();
    if (leaves) {
      // A rank that goes on might be at the step of the meeting before it hears of it.
      Engine& engine = context.core().engine();
      while (!engine.step_news().appointment.step()) {
        ASSERT_FALSE(engine.is_revoked());  // the look at what the others say
        std::this_thread::yield();
      }
      optimizer.leave();
    }
    while (!optimizer.has_left() && optimizer.context().membership().lost.empty()) {
      train(optimizer, point, problem);
    }
    EXPECT_EQ(optimizer.has_left(), leaves);
    EXPECT_CLOSE(point.x(), mean);
  };
  with_applicants(kMeeters, body, 1, body);
}

}  // namespace
}  // namespace bluefog::testing
