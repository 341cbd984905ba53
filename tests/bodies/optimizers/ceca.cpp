// The algorithm ceca against the stacked matrices of topology::Ceca, in float64.
#include "topology/ceca.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"
#include "tests/bodies/optimizers/support.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;
using topology::Ceca;
using topology::CecaPorts;

constexpr double kCecaRate = 0.05;
constexpr int kCecaSteps = 9;

DistributedOptimizerOptions ceca_options(std::optional<Schedule> schedule) {
  DistributedOptimizerOptions options;
  options.algorithm = "ceca";
  options.schedule = std::move(schedule);
  options.bucket_bytes = 32;
  return options;
}

/// x and s of all ranks, one row each, by dense matrices.
struct Stacked {
  explicit Stacked(const Ceca& ceca_of_all, const at::Tensor& start)
      : ceca(ceca_of_all), x(start.clone()), s(start.clone()) {}

  void local_step(double rate) {
    const at::Tensor move = -rate * gradients(x);
    x = x + move;
    s = s + move;
  }
  void communicate() {
    if (ceca.steps().empty()) {
      return;
    }
    const int size = ceca.size();
    const auto step = static_cast<int>(round++ % std::ssize(ceca.steps()));
    const at::Tensor both = dense(ceca.stacked_matrix(step)).mm(at::cat({x, s}));
    x = both.narrow(0, 0, size);
    s = both.narrow(0, size, size);
  }

  const Ceca& ceca;
  at::Tensor x;
  at::Tensor s;
  std::int64_t round = 0;
};

/// Five to seven ranks send s too, after others have changed it.
Ranks every_number(int at_least = 1) {
  Ranks ranks = some_ranks(at_least);
  ranks.thread_counts = {1, 2, 3, 4, 5, 6, 7, 8};
  return ranks;
}

std::vector<Ceca> all_ports(int size) {
  std::vector<Ceca> all{Ceca(size)};
  if (size % 2 == 0) {
    all.emplace_back(size, CecaPorts::One);
  }
  return all;
}

TEST(CecaAveraging, FollowsItsEquation) {
  on_ranks(every_number(), [](Context& context) {
    for (const Ceca& ceca : all_ports(context.size())) {
      for (const int steps_per_round : {1, 2}) {
        const LeastSquares problem = LeastSquares::of_rank(context.rank());
        const Point point(static_cast<std::uint64_t>(context.rank()));
        Stacked expected(ceca, starting_points(context.size(), Start::Different));
        torch::optim::SGD sgd(point.parameters(), kCecaRate);
        DistributedOptimizerOptions options = ceca_options(ceca.exchange());
        options.num_steps_per_communication = steps_per_round;
        DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
        for (int step = 1; step <= kCecaSteps; ++step) {
          train(optimizer, point, problem);
          expected.local_step(kCecaRate);
          if (step % steps_per_round == 0) {
            expected.communicate();
          }
          EXPECT_CLOSE(point.x(), expected.x[context.rank()]);
        }
      }
    }
  });
}

/// Without a local step every rank has the mean after one period, from the second one on too.
TEST(CecaAveraging, PeriodsAreExactMeans) {
  on_ranks(every_number(), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), 0.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   ceca_options(std::nullopt));
    at::Tensor mean = starting_points(context.size(), Start::Different).mean(0);
    for (const double shift : {0.0, 3.0}) {
      if (shift != 0.0) {
        const at::NoGradGuard no_grad;
        for (at::Tensor& parameter : point.parameters()) {
          parameter.add_(shift * context.rank());
        }
        mean = mean + shift * mean_rank(context);
      }
      for (std::size_t step = 0; step < Ceca(context.size()).steps().size(); ++step) {
        train(optimizer, point, problem);
      }
      EXPECT_CLOSE(point.x(), mean);
    }
  });
}

/// Parameters that ranks set in the middle of a period are what goes on, once they restart.
TEST(CecaAveraging, RestartForgetsOlderValues) {
  on_ranks(every_number(3), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), 0.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   ceca_options(std::nullopt));
    train(optimizer, point, problem);
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : point.parameters()) {
        parameter.fill_(0.1);
      }
    }
    optimizer.restart();
    const at::Tensor expected = at::full({LeastSquares::kDimension}, 0.1, at::kDouble);
    for (int step = 0; step < kCecaSteps; ++step) {
      train(optimizer, point, problem);
      EXPECT_SAME(point.x(), expected);
    }
  });
}

TEST(CecaAveraging, HasSchedulesOfItsOwn) {
  const auto matrices = [](const Schedule& schedule) {
    std::vector<MixingMatrix> all;
    for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
      all.push_back(schedule.mixing_matrix(step));
    }
    return all;
  };
  const auto named = [](const char* algorithm, const char* name) {
    return optimizers::schedule_named(algorithm, name, {.size = 6});
  };
  EXPECT_EQ(matrices(named("ceca", "ceca")), matrices(Ceca(6).exchange()));
  EXPECT_EQ(matrices(named("ceca", "ceca-one-port")), matrices(Ceca(6, CecaPorts::One).exchange()));
  EXPECT_EQ(matrices(named("ceca", "ring")), matrices(named("atc", "ring")));
  EXPECT_THROW((void)named("atc", "ceca"), UnsupportedError);
  EXPECT_THROW((void)named("ceca", "nothing"), InvalidArgument);
}

TEST(CecaAveraging, RefusesOtherMessages) {
  on_ranks(every_number(3), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kCecaRate);
    try {
      const DistributedOptimizer optimizer(
          context.shared_from_this(), sgd, point,
          ceca_options(topology::static_schedule(topology::exponential(context.size()))));
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("schedule: ceca expects none, or topology::Ceca("));
    }
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   ceca_options(std::nullopt));
    try {
      optimizer.set_next_plan(NeighborPlan::alone(context.rank(), context.size()));
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("expected no weights for one round: ceca knows"));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
