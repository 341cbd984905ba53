// DecentLaM and QG-DSGDm: momentum that leaves the bias of adapt-then-combine as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bluefog_cpp/base/error.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmKind;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kMomentumRate = 0.03;

struct MomentumCase {
  AlgorithmKind kind;
  /// Of the algorithm, and of the wrapped optimizer.
  double momentum = 0.0;
  double local_momentum = 0.0;
};

/// This rank's point after `steps` steps; the bucket size decides on the number of buckets.
at::Tensor end_of_run(Context& context, const MomentumCase& method, int steps,
                      const Schedule& schedule, std::int64_t bucket_bytes = 1 << 20) {
  const LeastSquares problem = LeastSquares::of_rank(context.rank());
  const Point point(static_cast<std::uint64_t>(context.rank()));
  torch::optim::SGD sgd(point.parameters(),
                        torch::optim::SGDOptions(kMomentumRate).momentum(method.local_momentum));
  DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                 {.algorithm = method.kind,
                                  .schedule = schedule,
                                  .momentum = method.momentum,
                                  .bucket_bytes = bucket_bytes});
  for (int step = 0; step < steps; ++step) {
    train(optimizer, point, problem);
  }
  return point.x().detach().clone();
}

/// Row r is x_r of x = W (x − γ g(x)), a linear system for the problems' gradients H x − c.
at::Tensor limit_of_adapt_then_combine(const MixingMatrix& matrix) {
  constexpr std::int64_t kD = LeastSquares::kDimension;
  const at::Tensor w = dense(matrix);
  const std::int64_t n = matrix.size();
  at::Tensor system = at::eye(n * kD, at::kDouble);
  at::Tensor right = at::zeros({n * kD}, at::kDouble);
  for (std::int64_t j = 0; j < n; ++j) {
    const LeastSquares problem = LeastSquares::of_rank(static_cast<int>(j));
    const at::Tensor step = at::eye(kD, at::kDouble) - kMomentumRate * problem.a.t().mm(problem.a);
    const at::Tensor pull = kMomentumRate * problem.a.t().mv(problem.b);
    for (std::int64_t i = 0; i < n; ++i) {
      system.slice(0, i * kD, (i + 1) * kD).slice(1, j * kD, (j + 1) * kD) -= w[i][j] * step;
      right.slice(0, i * kD, (i + 1) * kD) += w[i][j] * pull;
    }
  }
  return at::linalg_solve(system, right).view({n, kD});
}

TEST(Momentum, FollowsTheEquations) {
  on_ranks([](Context& context) {
    constexpr double kBeta = 0.75;
    constexpr int kSteps = 5;
    const Schedule schedule = topology::one_peer_exponential(context.size());
    at::Tensor lam = starting_points(context.size(), Start::Different);
    at::Tensor quasi = lam;
    at::Tensor lam_moment = at::zeros_like(lam);
    at::Tensor quasi_moment = at::zeros_like(lam);
    for (int step = 0; step < kSteps; ++step) {
      const at::Tensor w = dense(schedule.mixing_matrix(step));
      lam_moment =
          kBeta * lam_moment + (lam - w.mm(lam - kMomentumRate * gradients(lam))) / kMomentumRate;
      lam = lam - kMomentumRate * lam_moment;
      const at::Tensor next =
          w.mm(quasi - kMomentumRate * (gradients(quasi) + kBeta * quasi_moment));
      quasi_moment = kBeta * quasi_moment + (1 - kBeta) * (quasi - next) / kMomentumRate;
      quasi = next;
    }
    EXPECT_CLOSE(end_of_run(context, {AlgorithmKind::DecentLam, kBeta}, kSteps, schedule, 32),
                 lam[context.rank()]);
    EXPECT_CLOSE(
        end_of_run(context, {AlgorithmKind::QuasiGlobalMomentum, kBeta}, kSteps, schedule, 32),
        quasi[context.rank()]);
  });
}

TEST(Momentum, KeepsTheLimitOfAdaptThenCombine) {
  const Ranks ranks{.at_least = 4, .at_most = 4, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    const MixingMatrix star = topology::star(context.size());
    const at::Tensor limit = limit_of_adapt_then_combine(star)[context.rank()];
    const auto distance = [&](const MomentumCase& method) {
      const at::Tensor end =
          end_of_run(context, method, /*steps=*/400, topology::static_schedule(star));
      return (end - limit).norm().item<double>();
    };
    EXPECT_LT(distance({AlgorithmKind::DecentLam, 0.5}), 1e-7);
    EXPECT_LT(distance({AlgorithmKind::QuasiGlobalMomentum, 0.5}), 1e-7);
    // Momentum in the wrapped optimizer is a larger step, with its larger bias.
    EXPECT_GT(distance({AlgorithmKind::AdaptThenCombine, 0.0, 0.5}), 1e-3);
  });
}

TEST(Momentum, OfZeroIsAdaptThenCombine) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    const at::Tensor expected = end_of_run(context, {AlgorithmKind::AdaptThenCombine}, 5, schedule);
    EXPECT_CLOSE(end_of_run(context, {AlgorithmKind::DecentLam}, 5, schedule), expected);
    EXPECT_CLOSE(end_of_run(context, {AlgorithmKind::QuasiGlobalMomentum}, 5, schedule), expected);
  });
}

/// On the exponential graph of 4 ranks W has eigenvalues ± i/3: there it diverges.
TEST(Momentum, DecentLamExpectsASymmetricMatrix) {
  const Ranks ranks{.at_least = 4, .at_most = 4, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    const Schedule directed = topology::static_schedule(topology::exponential(context.size()));
    try {
      end_of_run(context, {AlgorithmKind::DecentLam, 0.9}, 1, directed);
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("decent_lam with momentum expects a symmetric W"));
    }
    EXPECT_CLOSE(end_of_run(context, {AlgorithmKind::DecentLam, 0.0}, 2, directed),
                 end_of_run(context, {AlgorithmKind::AdaptThenCombine}, 2, directed));
  });
}

TEST(Momentum, OutsideItsRangeIsRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule full = topology::static_schedule(topology::fully_connected(context.size()));
    for (const double momentum : {1.0, -0.5}) {
      try {
        end_of_run(context, {AlgorithmKind::DecentLam, momentum}, 1, full);
        ADD_FAILURE() << "expected an error";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("momentum: expected from 0 to below 1, found"));
      }
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
