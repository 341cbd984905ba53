// Optimizers that go on without a rank that is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::AlgorithmRow;
using optimizers::Averaging;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kRate = 0.02;
constexpr int kLossStep = 5;
constexpr int kSteps = 40;

Ranks that_shrink(std::vector<int> counts) {
  return {.at_least = 3,
          .thread_counts = std::move(counts),
          .layouts = {Layout::OneHost},
          .settings =
              [](Settings& settings, int) {
                settings.on_failure = OnFailure::Shrink;
                settings.log_level = LogLevel::Error;
              },
          .expect_usable = false};
}

/// The minimiser of the sum of all ranks' problems but one.
at::Tensor minimiser_without(int size, int gone) {
  std::vector<double> weights(static_cast<std::size_t>(size), 1.0);
  weights[static_cast<std::size_t>(gone)] = 0.0;
  return minimiser(weights);
}

void expect_survival(const AlgorithmRow& row, Context& context) {
  const int size = context.size();
  const int gone = 1;
  const LeastSquares problem = LeastSquares::of_rank(context.rank());
  const Point point(static_cast<std::uint64_t>(context.rank()));
  torch::optim::SGD sgd(point.parameters(), kRate);
  DistributedOptimizerOptions options;
  options.algorithm = row.name;
  options.bucket_bytes = 32;
  DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
  const at::Tensor minimum = minimiser_without(size, gone);
  double distance_then = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kLossStep && context.rank() == gone) {
      context.close();
      return;
    }
    const bool was_whole = optimizer.context().size() == size;
    train(optimizer, point, problem);
    if (was_whole && optimizer.context().size() < size) {
      distance_then = squared_distance(optimizer.context(), point.x(), minimum);
    }
  }
  optimizer.finish();
  EXPECT_EQ(optimizer.context().size(), size - 1);
  EXPECT_EQ(optimizer.step_count(), kSteps);
  const Membership::Loss& loss = optimizer.context().membership().lost.front();
  EXPECT_EQ(loss.rank, gone);
  if (row.uses_windows || row.name == AlgorithmName::None.text()) {
    EXPECT_EQ(loss.step, -1) << row.name;
  } else {
    // The step of the loss counts, and ranks may be some steps ahead of the lost one.
    EXPECT_GT(loss.step, kLossStep) << row.name;
    EXPECT_LT(loss.step, kSteps) << row.name;
  }
  EXPECT_LT(squared_distance(optimizer.context(), point.x(), minimum), distance_then);
}

TEST(Survivors, EveryAlgorithmGoesOnTowardsTheMinimumOfThoseLeft) {
  for (const auto make_row : optimizers::kBuiltInRows) {
    const AlgorithmRow row = make_row();
    if (row.uses_windows || row.name == AlgorithmName::None.text()) {
      continue;  // nobody waits for anybody there
    }
    SCOPED_TRACE(row.name);
    on_ranks(that_shrink({3, 4}), [&](Context& context) { expect_survival(row, context); });
  }
}

TEST(Survivors, GoOnFromTheMeanWithTheScheduleWithoutTheLostRank) {
  on_ranks(that_shrink({3, 4, 8}), [](Context& context) {
    const int gone = context.size() - 2;
    const int size = context.size();
    const Schedule schedule = topology::one_peer_exponential(size);
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const int own = context.rank();
    const Point point(static_cast<std::uint64_t>(own));
    torch::optim::SGD sgd(point.parameters(), kRate);
    int shrunk = 0;
    DistributedOptimizerOptions options;
    options.schedule = schedule;
    options.bucket_bytes = 32;
    options.when_shrunk = [&](const std::shared_ptr<Context>& smaller) {
      ++shrunk;
      EXPECT_EQ(smaller->size(), size - 1);
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    std::vector<int> left;
    for (int rank = 0; rank < size; ++rank) {
      if (rank != gone) {
        left.push_back(rank);
      }
    }
    at::Tensor expected;
    for (int step = 0; step < kSteps; ++step) {
      if (step == kLossStep && own == gone) {
        context.close();
        return;
      }
      const std::int64_t before = optimizer.step_count();
      train(optimizer, point, problem);
      Context& now = optimizer.context();
      if (now.size() == size) {
        continue;
      }
      if (!expected.defined()) {
        EXPECT_EQ(shrunk, 1);
        expected = point.x().detach().clone();
        // The same on all that are left.
        EXPECT_LT(squared_distance(now, point.x(), expected), 1e-20);
        std::vector<at::Tensor> rows(left.size(), expected);
        expected = at::stack(rows);
        continue;
      }
      if (optimizer.step_count() == before) {
        continue;  // passed over: the others have made it
      }
      const at::Tensor w =
          dense(schedule.without(std::vector<int>{gone}).among(left).mixing_matrix(before));
      std::vector<at::Tensor> of_left;
      for (std::size_t place = 0; place < left.size(); ++place) {
        of_left.push_back(LeastSquares::of_rank(left[place])
                              .gradient(expected[static_cast<std::int64_t>(place)]));
      }
      expected = w.mm(expected - kRate * at::stack(of_left));
      EXPECT_CLOSE(point.x(), expected[now.rank()]);
    }
    EXPECT_EQ(shrunk, 1);
    // Ranks that were behind have passed over what the others had made.
    EXPECT_EQ(optimizer.step_count(), kSteps);
  });
}

/// Steps wait for nobody, and are as many as a rank likes: `extra` more on each rank than on the one
/// before it.
void expect_to_hear_of_a_loss(AlgorithmName algorithm, std::optional<Averaging> averaging,
                              int extra) {
  std::atomic<int> here = 0;
  std::atomic<int> revoked = 0;
  on_ranks(that_shrink({3}), [&](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kRate);
    DistributedOptimizerOptions options;
    options.algorithm = algorithm;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    if (averaging) {
      optimizer.set_averaging(*averaging);
    }
    const int before = kLossStep + extra * context.rank();
    const int steps = before + kSteps;
    for (int step = 0; step < steps; ++step) {
      if (step == before) {
        ++here;
        while (here < context.size()) {
          std::this_thread::yield();
        }
        if (context.rank() == 0) {
          context.core().engine().revoke("rank 0 has called shrink()");
          revoked = 1;
        }
        while (revoked == 0) {
          std::this_thread::yield();
        }
      }
      train(optimizer, point, problem);
      EXPECT_EQ(optimizer.step_count(), step + 1);
    }
    EXPECT_EQ(optimizer.context().membership().epoch, 1);
  });
}

TEST(Survivors, AStepThatWaitsForNobodyHearsOfALossAndCounts) {
  expect_to_hear_of_a_loss(AlgorithmName::WinPut, std::nullopt, 2);
  expect_to_hear_of_a_loss(AlgorithmName::None, std::nullopt, 2);
  expect_to_hear_of_a_loss(AlgorithmName::AdaptThenCombine, Averaging::Nobody, 0);
}

TEST(Survivors, PlansOfTheProgramEndTheOptimizerWithAWord) {
  on_ranks(that_shrink({3}), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kRate);
    DistributedOptimizerOptions options;
    options.plans = [&](std::int64_t round) {
      return *topology::one_peer_exponential(3).plan_for(context.rank(), round);
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    train(optimizer, point, problem);
    if (context.rank() == 1) {
      context.close();
      return;
    }
    EXPECT_THAT(error_of<UnsupportedError>([&] {
                  while (true) {
                    train(optimizer, point, problem);
                  }
                }),
                HasSubstr("expected a schedule"));
  });
}

}  // namespace
}  // namespace bluefog::testing
