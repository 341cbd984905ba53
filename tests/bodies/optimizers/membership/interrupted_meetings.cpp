// Ranks that are lost within a meeting, which some ranks have ended, and others not.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/engine/engine.hpp"
#include "ops/collectives.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/ranks.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;

constexpr int kMeeting = 3;
constexpr int kLostInMeeting = 2;
constexpr int kStepsAfterMeeting = 6;

struct HasEnded {};

/// What a rank's program does in the meeting that takes a process in: rank 2 ends, rank 1 hears of it
/// there, and the others have begun their next step before they do.
void meet_and_lose(Context& now, int number) {
  if (now.size() <= kMeeting) {
    return;
  }
  if (number == kLostInMeeting) {
    ops::barrier(now);
    now.close();
    throw HasEnded();
  }
  ops::barrier(now);
  while (number == 1) {  // NOLINT(bugprone-infinite-loop): check_revoked throws
    now.core().engine().check_revoked("when_shrunk");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(InterruptedMeetings, SchedulesBeginAnewOnAllRanks) {
  const auto body = [](Context& context) {
    const bool joins = context.is_applicant();
    const int number = joins ? kMeeting : context.rank();
    const Point point(static_cast<std::uint64_t>(number));
    torch::optim::SGD sgd(point.parameters(), 0.01);
    DistributedOptimizerOptions options;
    const auto make = [](const Context& group) {
      return topology::static_schedule(topology::ring(group.size(), topology::RingStyle::Right));
    };
    if (!joins) {
      options.schedule = make(context);
    }
    int made_for = 0;
    options.make_schedule = [&](const Context& group) {
      made_for = group.size();
      return make(group);
    };
    options.when_shrunk = [&](const std::shared_ptr<Context>& now) { meet_and_lose(*now, number); };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    const LeastSquares problem = LeastSquares::of_rank(number);
    try {
      optimizer.join();
      while (optimizer.context().membership().lost.empty()) {
        train(optimizer, point, problem);
      }
    } catch (const HasEnded&) {
      EXPECT_EQ(number, kLostInMeeting);
      return;
    }
    EXPECT_EQ(optimizer.context().size(), kMeeting);
    EXPECT_EQ(made_for, kMeeting);
    for (int step = 0; step < kStepsAfterMeeting; ++step) {
      train(optimizer, point, problem);
    }
    optimizer.finish();
  };
  with_applicants(kMeeting, body, 1, body);
}

}  // namespace
}  // namespace bluefog::testing
