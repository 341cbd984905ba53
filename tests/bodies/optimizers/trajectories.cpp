// Steps of each algorithm against their equations, in float64 with a dense W.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;

constexpr double kRate = 0.05;
constexpr int kSteps = 6;
constexpr std::int64_t kSmallBuckets = 32;

DistributedOptimizerOptions options_for(AlgorithmName algorithm, std::optional<Schedule> schedule,
                                        std::int64_t bucket_bytes = kSmallBuckets) {
  DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.schedule = std::move(schedule);
  options.bucket_bytes = bucket_bytes;
  return options;
}

std::vector<Schedule> schedules(int size) {
  return {topology::static_schedule(topology::exponential(size)),
          topology::static_schedule(topology::ring(size, topology::RingStyle::Left)),
          topology::one_peer_exponential(size)};
}

TEST(AdaptThenCombine, FollowsItsEquation) {
  on_ranks([](Context& context) {
    for (const Schedule& schedule : schedules(context.size())) {
      for (const std::int64_t bucket_bytes : {kSmallBuckets, std::int64_t{1} << 20}) {
        const LeastSquares problem = LeastSquares::of_rank(context.rank());
        const Point point(static_cast<std::uint64_t>(context.rank()));
        at::Tensor expected = starting_points(context.size(), Start::Different);
        torch::optim::SGD sgd(point.parameters(), kRate);
        DistributedOptimizer optimizer(
            context.shared_from_this(), sgd, point,
            options_for(AlgorithmName::AdaptThenCombine, schedule, bucket_bytes));
        EXPECT_EQ(optimizer.buckets().size(), bucket_bytes == kSmallBuckets ? 3 : 1);
        for (int step = 0; step < kSteps; ++step) {
          train(optimizer, point, problem);
          const at::Tensor w = dense(schedule.mixing_matrix(step));
          expected = w.mm(expected - kRate * gradients(expected));
          EXPECT_CLOSE(point.x(), expected[context.rank()]);
        }
      }
    }
  });
}

TEST(AdaptWithCombine, FollowsItsEquation) {
  on_ranks([](Context& context) {
    for (const Schedule& schedule : schedules(context.size())) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      at::Tensor expected = starting_points(context.size(), Start::Equal);
      torch::optim::SGD sgd(point.parameters(), kRate);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                     options_for(AlgorithmName::AdaptWithCombine, schedule));
      at::Tensor w = at::eye(context.size(), at::kDouble);  // all start alike
      for (int step = 0; step < kSteps; ++step) {
        train(optimizer, point, problem);
        expected = w.mm(expected) - kRate * gradients(expected);
        EXPECT_CLOSE(point.x(), expected[context.rank()]);
        w = dense(schedule.mixing_matrix(step));
      }
      optimizer.finish();
      EXPECT_CLOSE(point.x(), w.mm(expected)[context.rank()]);
      optimizer.finish();  // nothing is left
      EXPECT_CLOSE(point.x(), w.mm(expected)[context.rank()]);
      expected = w.mm(expected);
      train(optimizer, point, problem);
      EXPECT_CLOSE(point.x(), (expected - kRate * gradients(expected))[context.rank()]);
    }
  });
}

/// W = J and an equal start: the mean follows parallel SGD.
TEST(Trajectories, WithFullAveragingTheyAreParallelSgd) {
  on_ranks([](Context& context) {
    const Schedule full = topology::static_schedule(topology::fully_connected(context.size()));
    for (const AlgorithmName kind :
         {AlgorithmName::GradientAllreduce, AlgorithmName::AdaptThenCombine,
          AlgorithmName::AdaptWithCombine}) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      at::Tensor x = point.x().detach().clone();
      torch::optim::SGD sgd(point.parameters(), kRate);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                     options_for(kind, full));
      for (int step = 0; step < kSteps; ++step) {
        train(optimizer, point, problem);
        optimizer.finish();
        x = x - kRate * gradients(x.expand({context.size(), -1})).mean(0);
        EXPECT_CLOSE(point.x(), x);
      }
    }
  });
}

/// Momentum sees the mean gradient: one process over all the data.
TEST(GradientAllreduce, IsOneProcessOnTheConcatenatedBatch) {
  on_ranks([](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    const Point alone(0);
    const auto settings = torch::optim::SGDOptions(kRate).momentum(0.9).weight_decay(0.01);
    torch::optim::SGD sgd(point.parameters(), settings);
    torch::optim::SGD sgd_alone(alone.parameters(), settings);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   options_for(AlgorithmName::GradientAllreduce, std::nullopt));
    for (int step = 0; step < kSteps; ++step) {
      train(optimizer, point, problem);
      sgd_alone.zero_grad();
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (int rank = 0; rank < context.size(); ++rank) {
        loss = loss + LeastSquares::of_rank(rank).loss(alone.x()) / context.size();
      }
      loss.backward();
      sgd_alone.step();
      EXPECT_CLOSE(point.x(), alone.x());
    }
  });
}

/// However gradients are cleared, accumulation over two backward passes and reading gradients
/// before the step work as with one process.
TEST(GradientAllreduce, GradientsAreMeansAfterBackward) {
  on_ranks([](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kRate);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   options_for(AlgorithmName::GradientAllreduce, std::nullopt));
    const std::vector<std::function<void()>> clear{[&] { sgd.zero_grad(); },
                                                   [&] { optimizer.zero_grad(); },
                                                   [&] { optimizer.zero_grad(false); }};
    for (int step = 0; step < 6; ++step) {
      clear[step % 3]();
      for (const at::Tensor& parameter : point.parameters()) {
        const at::Tensor& gradient = parameter.grad();
        EXPECT_TRUE(step % 3 == 2 ? !gradient.any().item<bool>() : !gradient.defined());
      }
      const at::Tensor x = point.x().detach().clone();
      const at::Tensor mean = gradients(x.expand({context.size(), -1})).mean(0);
      for (int pass = 1; pass <= 2; ++pass) {
        problem.loss(point.x()).backward();
        const at::Tensor found =
            at::cat({point.first.grad().flatten(), point.second.grad().flatten(),
                     point.third.grad().flatten()});
        EXPECT_CLOSE(found, pass * mean);
      }
      optimizer.step();
      EXPECT_CLOSE(point.x(), x - kRate * 2 * mean);
    }
  });
}

/// On a heterogeneous problem the fixed point of ATC is nearer to the minimiser than that of AWC.
TEST(Trajectories, TheBiasOfAwcExceedsThatOfAtc) {
  on_ranks({.at_least = 3, .at_most = 8, .layouts = {Layout::OneHost}}, [](Context& context) {
    const at::Tensor best = minimiser(context.size());
    const auto bias_of = [&](AlgorithmName kind) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), 0.02);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                     options_for(kind, std::nullopt));
      for (int step = 0; step < 800; ++step) {
        train(optimizer, point, problem);
      }
      return squared_distance(context, point.x(), best);
    };
    const double atc = bias_of(AlgorithmName::AdaptThenCombine);
    const double awc = bias_of(AlgorithmName::AdaptWithCombine);
    if (topology::exponential(context.size()) == topology::fully_connected(context.size())) {
      EXPECT_LT(atc, 1e-16);  // W = J: parallel gradient descent has no bias
    } else {
      EXPECT_GT(atc, 1e-8);
    }
    EXPECT_GT(awc, 2 * atc);
  });
}

}  // namespace
}  // namespace bluefog::testing
