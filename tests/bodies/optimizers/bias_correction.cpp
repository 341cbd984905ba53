// EXTRA, exact diffusion, D² and gradient tracking: their equations with a dense W, and the
// minimiser that they reach at a fixed step size where others stop beside it.
#include <gtest/gtest.h>

#include "ops/collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/lazy_mixing.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;

constexpr double kFixedRate = 0.05;
constexpr int kFewSteps = 6;

/// One rank of a run with plain SGD, rank r from `Point(r)`.
struct Descent {
  Descent(Context& context, AlgorithmName kind, std::optional<Schedule> schedule,
          double momentum = 0.0, std::int64_t bucket_bytes = 32)
      : problem(LeastSquares::of_rank(context.rank())),
        point(static_cast<std::uint64_t>(context.rank())),
        sgd(point.parameters(), torch::optim::SGDOptions(kFixedRate).momentum(momentum)),
        optimizer(
            context.shared_from_this(), sgd, point,
            {.algorithm = kind, .schedule = std::move(schedule), .bucket_bytes = bucket_bytes}) {}

  void step() { train(optimizer, point, problem); }

  LeastSquares problem;
  Point point;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

Schedule fixed(const MixingMatrix& matrix) { return topology::static_schedule(matrix); }

TEST(Extra, FollowsItsEquation) {
  on_ranks([](Context& context) {
    const MixingMatrix matrix = topology::ring(context.size());
    const at::Tensor w = dense(matrix);
    const at::Tensor damped = w + at::eye(context.size(), at::kDouble);
    Descent run(context, AlgorithmName::Extra, fixed(matrix));
    at::Tensor before = starting_points(context.size(), Start::Different);
    at::Tensor now = w.mm(before) - kFixedRate * gradients(before);
    for (int step = 0; step < kFewSteps; ++step) {
      run.step();
      EXPECT_CLOSE(run.point.x(), now[context.rank()]);
      const at::Tensor next = damped.mm(now) - damped.mm(before) / 2 -
                              kFixedRate * (gradients(now) - gradients(before));
      before = now;
      now = next;
    }
  });
}

/// Both follow the same recursion, exact diffusion with ½ (I + W) and D² with W.
TEST(ExactDiffusion, FollowsItsEquationAndSoDoesD2) {
  on_ranks([](Context& context) {
    for (const AlgorithmName kind : {AlgorithmName::ExactDiffusion, AlgorithmName::D2}) {
      const MixingMatrix matrix = topology::lazy(topology::ring(context.size()), 0.25);
      const bool is_d2 = kind == AlgorithmName::D2;
      const at::Tensor w = dense(is_d2 ? matrix : topology::lazy(matrix));
      Descent run(context, kind, fixed(matrix));
      at::Tensor x = starting_points(context.size(), Start::Different);
      at::Tensor psi_before = x;
      for (int step = 0; step < kFewSteps; ++step) {
        run.step();
        const at::Tensor psi = x - kFixedRate * gradients(x);
        x = w.mm(psi + x - psi_before);
        psi_before = psi;
        EXPECT_CLOSE(run.point.x(), x[context.rank()]);
      }
    }
  });
}

/// The step direction is that of the wrapped optimizer, momentum included.
TEST(ExactDiffusion, CorrectsTheStepsOfTheWrappedOptimizer) {
  on_ranks(some_ranks(), [](Context& context) {
    constexpr double kMomentum = 0.5;
    const MixingMatrix matrix = topology::ring(context.size());
    const at::Tensor w = dense(topology::lazy(matrix));
    Descent run(context, AlgorithmName::ExactDiffusion, fixed(matrix), kMomentum);
    at::Tensor x = starting_points(context.size(), Start::Different);
    at::Tensor psi_before = x;
    at::Tensor moment = at::zeros_like(x);
    for (int step = 0; step < kFewSteps; ++step) {
      run.step();
      moment = kMomentum * moment + gradients(x);
      const at::Tensor psi = x - kFixedRate * moment;
      x = w.mm(psi + x - psi_before);
      psi_before = psi;
      EXPECT_CLOSE(run.point.x(), x[context.rank()]);
    }
  });
}

/// The gradients that the caller sees, with zeros for a parameter that has none.
at::Tensor gradient_or_zeros(const Point& point) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : {point.first, point.second, point.third}) {
    parts.push_back(parameter.grad().defined() ? parameter.grad().flatten()
                                               : at::zeros({parameter.numel()}, at::kDouble));
  }
  return at::cat(parts);
}

/// W(t) changes every round; gradients that the caller sees stay the rank's own.
TEST(GradientTracking, FollowsItsEquation) {
  on_ranks([](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    Descent run(context, AlgorithmName::GradientTracking, schedule);
    at::Tensor x = starting_points(context.size(), Start::Different);
    at::Tensor own = gradients(x);
    at::Tensor y = own;
    for (int step = 0; step < kFewSteps; ++step) {
      run.step();
      EXPECT_CLOSE(gradient_or_zeros(run.point), own[context.rank()]);
      const at::Tensor w = dense(schedule.mixing_matrix(step));
      x = w.mm(x - kFixedRate * y);
      EXPECT_CLOSE(run.point.x(), x[context.rank()]);
      const at::Tensor next = gradients(x);
      y = w.mm(y) + next - own;
      own = next;
      EXPECT_CLOSE(y.mean(0), own.mean(0));  // the equation keeps the mean
    }
  });
}

/// The state is W y − g: its mean is zero as long as mean(y) = mean(g), however gradients are
/// cleared, and with a parameter that has none.
TEST(GradientTracking, KeepsTheMeanGradientInEveryStep) {
  on_ranks(some_ranks(), [](Context& context) {
    Descent run(context, AlgorithmName::GradientTracking,
                topology::one_peer_exponential(context.size()));
    for (int step = 0; step < 9; ++step) {
      if (step % 3 == 0) {
        run.optimizer.zero_grad();
      } else if (step % 3 == 1) {
        run.sgd.zero_grad();
      } else {
        run.sgd.zero_grad(/*set_to_none=*/false);
      }
      run.problem.loss(run.point.x()).backward();
      if (step == 4) {
        run.point.second.mutable_grad().reset();
      }
      const at::Tensor own = gradient_or_zeros(run.point);
      run.optimizer.step();
      EXPECT_SAME(gradient_or_zeros(run.point), own);
      for (const auto& [name, tensor] : run.optimizer.algorithm_state()) {
        at::Tensor carried = tensor.clone();
        ops::allreduce(context, optimizers::view_of(carried));
        EXPECT_CLOSE(carried, at::zeros_like(carried)) << name;
      }
    }
  });
}

struct Method {
  AlgorithmName kind;
  double momentum;
};

TEST(BiasCorrection, ReachesTheMinimiserAtAFixedStepSize) {
  const Ranks ranks{.at_least = 4, .at_most = 4, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    const at::Tensor best = minimiser(context.size());
    const Schedule schedule = fixed(topology::lazy(topology::ring(context.size()), 0.4));
    const auto distance_after_steps = [&](Method method) {
      Descent run(context, method.kind, schedule, method.momentum, 1 << 20);
      for (int step = 0; step < 300; ++step) {
        run.step();
      }
      return squared_distance(context, run.point.x(), best);
    };
    EXPECT_GT(distance_after_steps({AlgorithmName::AdaptThenCombine, 0.0}), 1e-4);
    constexpr double kReached = 1e-10;  // squared, and still on its way
    for (const Method method :
         {Method{AlgorithmName::Extra, 0.0}, Method{AlgorithmName::ExactDiffusion, 0.0},
          Method{AlgorithmName::ExactDiffusion, 0.5}, Method{AlgorithmName::D2, 0.0},
          Method{AlgorithmName::GradientTracking, 0.0}}) {
      EXPECT_LT(distance_after_steps(method), kReached)
          << name_of(method.kind) << ", momentum " << method.momentum;
    }
  });
}

/// Sums are formed in float32 or better; the state between steps has the parameters' type.
TEST(BiasCorrection, TakesEveryFloatingType) {
  on_ranks({.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}}, [](Context& context) {
    for (const AlgorithmName kind :
         {AlgorithmName::Extra, AlgorithmName::ExactDiffusion, AlgorithmName::GradientTracking,
          AlgorithmName::DmSgd, AlgorithmName::DecentLam, AlgorithmName::QuasiGlobalMomentum}) {
      const auto end_of = [&](at::ScalarType type) {
        Bag bag;
        const at::Tensor x = bag.add("x", at::full({5}, context.rank(), type));
        torch::optim::SGD sgd(bag.parameters(), 0.25);
        DistributedOptimizer optimizer(
            context.shared_from_this(), sgd, bag,
            {.algorithm = kind, .schedule = fixed(topology::fully_connected(context.size()))});
        for (int step = 0; step < 3; ++step) {
          x.mutable_grad() = at::full({5}, 1 + context.rank(), type);
          optimizer.step();
        }
        return x.detach().to(at::kDouble);
      };
      const at::Tensor expected = end_of(at::kDouble);
      EXPECT_EQ(difference(end_of(at::kFloat), expected, 1e-6), "") << name_of(kind);
      EXPECT_EQ(difference(end_of(at::kHalf), expected, 1e-2), "") << name_of(kind);
      EXPECT_EQ(difference(end_of(at::kBFloat16), expected, 5e-2), "") << name_of(kind);
    }
  });
}

/// All ranks forget together: the run goes on as one that starts there.
TEST(BiasCorrection, RestartedRunsAreNewOnes) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmName kind : {AlgorithmName::Extra, AlgorithmName::ExactDiffusion,
                                     AlgorithmName::D2, AlgorithmName::GradientTracking}) {
      Descent run(context, kind, std::nullopt);
      Descent fresh(context, kind, std::nullopt);
      for (int step = 0; step < 3; ++step) {
        run.step();
      }
      {
        const torch::NoGradGuard no_grad;
        fresh.point.first.copy_(run.point.first);
        fresh.point.second.copy_(run.point.second);
        fresh.point.third.copy_(run.point.third);
      }
      run.optimizer.restart();
      for (int step = 0; step < 3; ++step) {
        run.step();
        fresh.step();
      }
      EXPECT_SAME(run.point.x(), fresh.point.x());
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
