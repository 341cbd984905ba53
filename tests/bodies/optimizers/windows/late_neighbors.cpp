// Rounds over windows that wait for late neighbours, leave them out, or take their last values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/windows/late_sources.hpp"
#include "tests/bodies/optimizers/windows/window_run.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::BucketWindows;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using optimizers::LateRank;
using optimizers::LateRules;
using optimizers::LateSources;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::minutes kLong{1};

Ranks few_ranks() { return {.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}}; }

/// One rank's part of rounds, by the rules, of a tensor of one element and full averages.
struct Rounds {
  Rounds(Context& ranks, const LateRules& rules)
      : context(ranks),
        plan(topology::fully_connected(ranks.size()).plan_for(ranks.rank())),
        value(at::full({1}, static_cast<double>(ranks.rank()), at::kDouble)),
        windows(ranks, {optimizers::view_of(value)}, {"late"},
                topology::static_schedule(topology::fully_connected(ranks.size())),
                {.fill = ops::WindowFill::OwnValue}),
        late(ranks, windows, rules) {}

  /// @return the number of the round.
  std::int64_t make_one() {
    const std::int64_t number = late.begin_round();
    windows.put(0, plan, number);
    const NeighborPlan& heard = late.wait(plan);
    windows.average(0, heard, optimizers::view_of(value));
    return number;
  }
  /// The counts of rank 0.
  [[nodiscard]] LateRank of_rank_0() const {
    for (const LateRank& each : late.ranks()) {
      if (each.rank == 0) {
        return each;
      }
    }
    return {};
  }

  Context& context;
  NeighborPlan plan;
  at::Tensor value;
  BucketWindows windows;
  LateSources late;
};

TEST(LateNeighbors, WhoComesWithinTheGraceTimeIsNotLate) {
  on_ranks(few_ranks(), [](Context& context) {
    Rounds rounds(context, {.grace = kLong});
    ops::barrier(context);
    for (int round = 0; round < 3; ++round) {
      if (context.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      rounds.make_one();
    }
    EXPECT_TRUE(rounds.late.ranks().empty());
    ops::barrier(context);
  });
}

// Rank 0 makes its first round when the others have come to where they wait for it.
TEST(LateNeighbors, NoValueIsOlderThanTheBound) {
  on_ranks(few_ranks(), [](Context& context) {
    constexpr std::int64_t kBound = 2;
    Rounds rounds(context, {.staleness_bound = kBound});
    ops::barrier(context);
    if (context.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_LE(rounds.make_one(), kBound + 1);
      EXPECT_TRUE(rounds.late.ranks().empty()) << "it was behind, and the others in time";
    }
    for (int round = 0; round < 6; ++round) {
      rounds.make_one();
    }
    rounds.windows.announce_absence();  // others may have rounds to make
    for (const LateRank& each : rounds.late.ranks()) {
      EXPECT_LE(each.oldest, kBound) << each.rank;
      EXPECT_EQ(each.rounds_without, 0);
    }
    ops::barrier(context);
  });
}

TEST(LateNeighbors, ALateOneIsLeftOutAndItsWeightIsTheRanksOwn) {
  on_ranks({.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    Rounds rounds(context, {.leaves_out = true});
    ops::barrier(context);
    if (context.rank() == 1) {
      for (int round = 0; round < 3; ++round) {
        rounds.make_one();
      }
      EXPECT_EQ(rounds.value.item<double>(), 1.0);
      EXPECT_EQ(rounds.of_rank_0().rounds, 3);
      EXPECT_EQ(rounds.of_rank_0().rounds_without, 3);
      EXPECT_EQ(rounds.of_rank_0().oldest, 0);
      meet(context);
    } else {
      meet(context);
      EXPECT_EQ(rounds.make_one(), 3) << "the number of what has come";
      EXPECT_EQ(rounds.value.item<double>(), 0.5);
      EXPECT_TRUE(rounds.late.ranks().empty());
    }
    ops::barrier(context);
  });
}

TEST(LateNeighbors, LastValuesCountUpToTheBoundAndOlderOnesAreLeftOut) {
  on_ranks({.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    Rounds rounds(context, {.staleness_bound = 2, .leaves_out = true});
    ops::barrier(context);
    if (context.rank() == 0) {
      rounds.windows.put(0, rounds.plan, rounds.late.begin_round());  // 0
      meet(context);
      meet(context);
    } else {
      meet(context);
      rounds.make_one();  // in time: both have number 1
      EXPECT_EQ(rounds.value.item<double>(), 0.5);
      rounds.make_one();  // one round old
      rounds.make_one();  // two
      EXPECT_EQ(rounds.value.item<double>(), 0.125);
      EXPECT_EQ(rounds.of_rank_0().rounds_without, 0);
      rounds.make_one();
      rounds.make_one();
      EXPECT_EQ(rounds.value.item<double>(), 0.125);
      EXPECT_EQ(rounds.of_rank_0().rounds, 4);
      EXPECT_EQ(rounds.of_rank_0().rounds_without, 2);
      EXPECT_EQ(rounds.of_rank_0().oldest, 2);
      meet(context);
    }
    ops::barrier(context);
  });
}

// A rank that was stopped for long is current with its next value, and gets time again.
TEST(LateNeighbors, WhoComesBackIsWaitedForAgain) {
  on_ranks({.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    Rounds rounds(context, {.grace = std::chrono::seconds(1)});
    ops::barrier(context);
    if (context.rank() == 1) {
      for (int round = 0; round < 10; ++round) {
        rounds.make_one();
      }
      EXPECT_EQ(rounds.of_rank_0().rounds, 10);
      EXPECT_EQ(rounds.of_rank_0().oldest, 10);
      meet(context);
      meet(context);
      EXPECT_EQ(rounds.windows.stamp_of(0), 10);
      EXPECT_EQ(rounds.make_one(), 11);
      EXPECT_EQ(rounds.of_rank_0().rounds, 10);
    } else {
      meet(context);
      EXPECT_EQ(rounds.make_one(), 10);
      meet(context);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(rounds.make_one(), 11);
    }
    ops::barrier(context);
  });
}

TEST(LateNeighbors, AWaitBeyondTheTimeoutNamesTheRank) {
  Ranks ranks = few_ranks();
  ranks.settings = [](Settings& settings, int rank) {
    settings.timeout = std::chrono::milliseconds(rank == 0 ? 20'000 : 300);
  };
  on_ranks(ranks, [](Context& context) {
    Rounds rounds(context, {.staleness_bound = 1});
    if (context.rank() == 0) {
      meet(context);
    } else {
      rounds.windows.put(0, rounds.plan, rounds.late.begin_round() + 9);
      EXPECT_THAT(error_of<TimeoutError>([&] {
                    for (int round = 0; round < 3; ++round) {
                      rounds.make_one();
                    }
                  }),
                  AllOf(HasSubstr("a value of rank 0 with a stamp of at least"),
                        HasSubstr("found 0 after 0.3 s")));
      meet(context);
    }
    meet(context);
  });
}

// Numbers of rounds run ahead with the fastest rank: whoever has finished must not be waited for.
TEST(LateNeighbors, NobodyWaitsForARankThatIsAwayUntilItsNextValue) {
  on_ranks({.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost, Layout::NetworkOnly}},
           [](Context& context) {
             Rounds rounds(context, {.grace = kLong, .staleness_bound = 1});
             ops::barrier(context);
             if (context.rank() == 0) {
               rounds.make_one();
               rounds.windows.announce_absence();
               meet(context);
               EXPECT_EQ(rounds.make_one(), 5) << "the number of what has come";
               meet(context);
             } else {
               for (int round = 0; round < 5; ++round) {
                 rounds.make_one();
               }
               EXPECT_TRUE(rounds.late.ranks().empty());
               meet(context);
               meet(context);
               EXPECT_EQ(rounds.windows.stamp_of(0), 5) << "back, with the number of now";
             }
             ops::barrier(context);
           });
}

DistributedOptimizerOptions with_numbers(
    const Context& context, const std::map<std::string, double, std::less<>>& numbers) {
  DistributedOptimizerOptions options = full_averaging(context, optimizers::AlgorithmName::WinPut);
  options.numbers = numbers;
  return options;
}

// With time for all a round averages as adapt-then-combine does, or with newer values.
TEST(LateNeighbors, AnOptimizerWaitsByItsOptions) {
  on_ranks({.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}}, [](Context& context) {
    const Point point(own_seed(context));
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    torch::optim::SGD sgd(point.parameters(), kWindowRate);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   with_numbers(context, {{"grace_s", 60.0}}));
    ops::barrier(context);
    const at::Tensor before = total(context, point.x());
    if (context.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    optimizer.zero_grad();
    optimizer.step();  // without gradients: the average alone
    EXPECT_CLOSE(point.x(), before / context.size());
    EXPECT_TRUE(optimizer.late_ranks().empty());
    meet(context);
  });
}

TEST(LateNeighbors, AnOptimizerReportsWhoWasLate) {
  on_ranks({.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}}, [](Context& context) {
    const Point point(own_seed(context));
    const at::Tensor before = point.x().detach().clone();
    torch::optim::SGD sgd(point.parameters(), kWindowRate);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   with_numbers(context, {{"leave_out_late", 1.0}}));
    if (context.rank() == 0) {
      meet(context);
    } else {
      if (context.rank() == 1) {
        optimizer.zero_grad();
        optimizer.step();
        EXPECT_SAME(point.x(), before);
        ASSERT_EQ(optimizer.late_ranks().size(), static_cast<std::size_t>(context.size() - 1));
        EXPECT_EQ(optimizer.late_ranks().front().rank, 0);
        EXPECT_EQ(optimizer.late_ranks().front().rounds_without, 1);
      }
      meet(context);
    }
    meet(context);
  });
}

TEST(LateNeighbors, AnOptimizerThatHasFinishedHoldsUpNobody) {
  on_ranks({.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}}, [](Context& context) {
    const Point point(own_seed(context));
    torch::optim::SGD sgd(point.parameters(), kWindowRate);
    DistributedOptimizer optimizer(
        context.shared_from_this(), sgd, point,
        with_numbers(context, {{"grace_s", 60.0}, {"staleness_bound", 1.0}}));
    const int steps = context.rank() == 0 ? 1 : 6;
    for (int step = 0; step < steps; ++step) {
      optimizer.step();
    }
    optimizer.finish();
    meet(context);
  });
}

TEST(LateNeighbors, OptionsOutOfTheirLimitsAreRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const std::multimap<std::string, double> refused{
        {"grace_s", -1.0},          {"staleness_bound", -1.0}, {"staleness_bound", 9.3e18},
        {"staleness_bound", 1e300}, {"staleness_bound", 0.5},  {"leave_out_late", 0.5},
        {"leave_out_late", 1.5}};
    for (const auto& [name, value] : refused) {
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), kWindowRate);
      EXPECT_THAT(error_of<InvalidArgument>([&, option = name, number = value] {
                    DistributedOptimizer(context.shared_from_this(), sgd, point,
                                         with_numbers(context, {{option, number}}));
                  }),
                  HasSubstr(name));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
