// DmSGD, whose momentum is a larger step, and DecentLaM and QG-DSGDm, whose momentum leaves the bias
// of adapt-then-combine as it is.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kMomentumRate = 0.03;

struct MomentumCase {
  AlgorithmName kind;
  /// Momentum of the algorithm, and of the wrapped optimizer.
  double momentum = 0.0;
  double local_momentum = 0.0;
};

/// This rank's point after steps at these rates; the bucket size decides on the number of buckets.
at::Tensor end_of_run(Context& context, const MomentumCase& method,
                      const std::vector<double>& rates, const Schedule& schedule,
                      std::int64_t bucket_bytes = 1 << 20) {
  const LeastSquares problem = LeastSquares::of_rank(context.rank());
  const Point point(static_cast<std::uint64_t>(context.rank()));
  torch::optim::SGD sgd(point.parameters(),
                        torch::optim::SGDOptions(kMomentumRate).momentum(method.local_momentum));
  DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                 {.algorithm = method.kind,
                                  .schedule = schedule,
                                  .momentum = method.momentum,
                                  .bucket_bytes = bucket_bytes});
  for (const double rate : rates) {
    sgd.param_groups().front().options().set_lr(rate);
    train(optimizer, point, problem);
  }
  return point.x().detach().clone();
}

at::Tensor end_of_run(Context& context, const MomentumCase& method, int steps,
                      const Schedule& schedule, std::int64_t bucket_bytes = 1 << 20) {
  const std::vector<double> rates(static_cast<std::size_t>(steps), kMomentumRate);
  return end_of_run(context, method, rates, schedule, bucket_bytes);
}

/// Row r is x_r of x = W (x − γ g(x)), a linear system for the problems' gradients H x − c.
at::Tensor limit_of_adapt_then_combine(const MixingMatrix& matrix, double rate = kMomentumRate) {
  constexpr std::int64_t kD = LeastSquares::kDimension;
  const at::Tensor w = dense(matrix);
  const std::int64_t n = matrix.size();
  at::Tensor system = at::eye(n * kD, at::kDouble);
  at::Tensor right = at::zeros({n * kD}, at::kDouble);
  for (std::int64_t j = 0; j < n; ++j) {
    const LeastSquares problem = LeastSquares::of_rank(static_cast<int>(j));
    const at::Tensor step = at::eye(kD, at::kDouble) - rate * problem.a.t().mm(problem.a);
    const at::Tensor pull = rate * problem.a.t().mv(problem.b);
    for (std::int64_t i = 0; i < n; ++i) {
      system.slice(0, i * kD, (i + 1) * kD).slice(1, j * kD, (j + 1) * kD) -= w[i][j] * step;
      right.slice(0, i * kD, (i + 1) * kD) += w[i][j] * pull;
    }
  }
  return at::linalg_solve(system, right).view({n, kD});
}

TEST(Momentum, FollowsTheEquations) {
  on_ranks([](Context& context) {
    constexpr double kBeta = 0.5;
    constexpr int kSteps = 5;
    const Schedule schedule = topology::one_peer_exponential(context.size());
    at::Tensor lam = starting_points(context.size(), Start::Different);
    at::Tensor quasi = lam;
    at::Tensor own = lam;
    at::Tensor own_moment = at::zeros_like(lam);
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
      own_moment = kBeta * own_moment + gradients(own);
      own = w.mm(own - kMomentumRate * own_moment);
    }
    EXPECT_CLOSE(end_of_run(context, {AlgorithmName::DmSgd, kBeta}, kSteps, schedule, 32),
                 own[context.rank()]);
    EXPECT_CLOSE(
        end_of_run(context, {AlgorithmName::AdaptThenCombine, 0.0, kBeta}, kSteps, schedule, 32),
        own[context.rank()]);
    EXPECT_CLOSE(end_of_run(context, {AlgorithmName::DecentLam, kBeta}, kSteps, schedule, 32),
                 lam[context.rank()]);
    EXPECT_CLOSE(
        end_of_run(context, {AlgorithmName::QuasiGlobalMomentum, kBeta}, kSteps, schedule, 32),
        quasi[context.rank()]);
  });
}

/// v counts each step at the rate that it was made with, where SGD's momentum and the papers' take
/// today's rate for all of them.
TEST(Momentum, KeepsTheRatesOfItsSteps) {
  on_ranks(some_ranks(), [](Context& context) {
    constexpr double kBeta = 0.5;
    const std::vector<double> rates{0.03, 0.03, 0.003, 0.003, 0.02};
    const Schedule schedule = topology::one_peer_exponential(context.size());
    at::Tensor lam = starting_points(context.size(), Start::Different);
    at::Tensor quasi = lam;
    at::Tensor own = lam;
    at::Tensor usual = lam;
    at::Tensor own_v = at::zeros_like(lam);
    at::Tensor lam_v = own_v;
    at::Tensor quasi_v = own_v;
    at::Tensor usual_moment = own_v;
    for (std::size_t step = 0; step < rates.size(); ++step) {
      const double rate = rates[step];
      const at::Tensor w = dense(schedule.mixing_matrix(static_cast<std::int64_t>(step)));
      own_v = kBeta * own_v + rate * gradients(own);
      own = w.mm(own - own_v);
      lam_v = kBeta * lam_v + lam - w.mm(lam - rate * gradients(lam));
      lam = lam - lam_v;
      const at::Tensor next = w.mm(quasi - rate * gradients(quasi) - kBeta * quasi_v);
      quasi_v = kBeta * quasi_v + (1 - kBeta) * (quasi - next);
      quasi = next;
      usual_moment = kBeta * usual_moment + gradients(usual);
      usual = w.mm(usual - rate * usual_moment);
    }
    const int rank = context.rank();
    const at::Tensor found = end_of_run(context, {AlgorithmName::DmSgd, kBeta}, rates, schedule);
    EXPECT_CLOSE(found, own[rank]);
    EXPECT_CLOSE(end_of_run(context, {AlgorithmName::DecentLam, kBeta}, rates, schedule),
                 lam[rank]);
    EXPECT_CLOSE(end_of_run(context, {AlgorithmName::QuasiGlobalMomentum, kBeta}, rates, schedule),
                 quasi[rank]);
    EXPECT_CLOSE(
        end_of_run(context, {AlgorithmName::AdaptThenCombine, 0.0, kBeta}, rates, schedule),
        usual[rank]);
    EXPECT_GT((found - usual[rank]).norm().item<double>(), 1e-3);
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
    EXPECT_LT(distance({AlgorithmName::DecentLam, 0.5}), 1e-7);
    EXPECT_LT(distance({AlgorithmName::QuasiGlobalMomentum, 0.5}), 1e-7);
    // DmSGD's limit is that of a step 1 / (1 − β) times as large, with its larger bias.
    const at::Tensor farther = limit_of_adapt_then_combine(star, 2 * kMomentumRate)[context.rank()];
    const at::Tensor own = end_of_run(context, {AlgorithmName::DmSgd, 0.5}, /*steps=*/400,
                                      topology::static_schedule(star));
    EXPECT_LT((own - farther).norm().item<double>(), 1e-7);
    EXPECT_GT((own - limit).norm().item<double>(), 1e-3);
    // So is momentum in the wrapped optimizer.
    EXPECT_GT(distance({AlgorithmName::AdaptThenCombine, 0.0, 0.5}), 1e-3);
  });
}

TEST(Momentum, OfZeroIsAdaptThenCombine) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    const at::Tensor expected = end_of_run(context, {AlgorithmName::AdaptThenCombine}, 5, schedule);
    EXPECT_CLOSE(end_of_run(context, {AlgorithmName::DmSgd}, 5, schedule), expected);
    EXPECT_CLOSE(end_of_run(context, {AlgorithmName::DecentLam}, 5, schedule), expected);
    EXPECT_CLOSE(end_of_run(context, {AlgorithmName::QuasiGlobalMomentum}, 5, schedule), expected);
  });
}

/// Four ranks, for which the exponential graphs make DecentLaM diverge.
Ranks four_ranks() { return {.at_least = 4, .at_most = 4, .layouts = {Layout::OneHost}}; }

/// "" or why the optimizer was refused.
std::string refusal_of_run(Context& context, const MomentumCase& method, const Schedule& schedule) {
  try {
    end_of_run(context, method, 1, schedule);
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(Momentum, ThatCarriesDifferencesOnIsRefused) {
  on_ranks(four_ranks(), [](Context& context) {
    const int n = context.size();
    const Schedule directed = topology::static_schedule(topology::exponential(n));
    const Schedule changing = topology::one_peer_exponential(n);
    for (const Schedule& schedule : {directed, changing}) {
      EXPECT_THAT(refusal_of_run(context, {AlgorithmName::DecentLam, 0.9}, schedule),
                  HasSubstr("schedule: decent_lam with momentum 0.9 expects differences between "
                            "ranks to die out where there are no gradients, found that they grow "
                            "by a factor of 1."));
      EXPECT_EQ(refusal_of_run(context, {AlgorithmName::DecentLam, 0.5}, schedule), "");
      EXPECT_EQ(refusal_of_run(context, {AlgorithmName::QuasiGlobalMomentum, 0.9}, schedule), "");
      EXPECT_CLOSE(end_of_run(context, {AlgorithmName::DecentLam, 0.0}, 2, schedule),
                   end_of_run(context, {AlgorithmName::AdaptThenCombine}, 2, schedule));
    }
  });
}

/// A long run stays near the minimiser with a schedule that the constructor accepts.
TEST(Momentum, ThatIsAcceptedStaysBounded) {
  on_ranks(four_ranks(), [](Context& context) {
    const int n = context.size();
    const Schedule schedule = topology::one_peer_exponential(n);
    const at::Tensor centre = minimiser(n);
    for (const auto& [kind, beta] : {std::pair(AlgorithmName::DecentLam, 0.5),
                                     std::pair(AlgorithmName::QuasiGlobalMomentum, 0.9)}) {
      const at::Tensor end = end_of_run(context, {kind, beta}, /*steps=*/400, schedule);
      // Each rank starts at a distance of about 1.5, and the bias is about 0.04.
      EXPECT_LT(squared_distance(context, end, centre), 0.1) << name_of(kind);
    }
  });
}

/// A rank sees only its own part of one plan: the ranks that it hears and sends to.
TEST(Momentum, DecentLamExpectsPlansInBothDirections) {
  on_ranks(four_ranks(), [](Context& context) {
    const int n = context.size();
    const Schedule changing = topology::one_peer_exponential(n);
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kMomentumRate);
    DistributedOptimizerOptions options{.algorithm = AlgorithmName::DecentLam, .momentum = 0.5};
    options.plans = [&](std::int64_t round) { return *changing.plan_for(context.rank(), round); };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    try {
      train(optimizer, point, problem);
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(fmt::format("found a plan that hears [{}] and sends to "
                                        "[{}]",
                                        (context.rank() + n - 1) % n, (context.rank() + 1) % n)));
    }
  });
}

/// Ranks 2 and 3 stay together in all rounds; 0 and 1 part in the second one.
TEST(Momentum, AboveAHalfDecentLamExpectsPlansThatStay) {
  on_ranks(four_ranks(), [](Context& context) {
    const int rank = context.rank();
    const LeastSquares problem = LeastSquares::of_rank(rank);
    for (const double beta : {0.5, 0.75}) {
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), kMomentumRate);
      DistributedOptimizerOptions options{.algorithm = AlgorithmName::DecentLam, .momentum = beta};
      options.plans = [&](std::int64_t round) {
        NeighborPlan plan = NeighborPlan::alone(rank, context.size());
        if (rank >= 2 || round == 0) {
          plan.self_weight = 0.5;
          plan.sources = {{rank ^ 1, 0.5}};
          plan.destinations = {{rank ^ 1, 1.0}};
        }
        return plan;
      };
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      train(optimizer, point, problem);
      if (beta > 0.5) {
        try {
          train(optimizer, point, problem);
          ADD_FAILURE() << "expected an error";
        } catch (const InvalidArgument& error) {
          EXPECT_LT(rank, 2);
          EXPECT_THAT(error.what(), HasSubstr("expects the same plan in every round"));
        } catch (const PeerFailure& error) {
          EXPECT_GE(rank, 2);
          EXPECT_THAT(error.what(), HasSubstr("expects the same plan in every round"));
        }
        optimizer.restart();
      }
      train(optimizer, point, problem);
      EXPECT_EQ(optimizer.round_count(), beta > 0.5 ? 3 : 2);  // a failed one counts
    }
  });
}

TEST(Momentum, OfTheOptimizerAsWellIsRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmName kind :
         {AlgorithmName::DecentLam, AlgorithmName::QuasiGlobalMomentum}) {
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      DistributedOptimizerOptions options;
      options.algorithm = kind;
      try {
        const optimizers::DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                                         options);
        ADD_FAILURE() << "expected an error";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("a momentum of its own"));
        EXPECT_THAT(error.what(), HasSubstr("found SGD with 0.9 in group 0"));
      }
    }
  });
}

TEST(Momentum, OutsideItsRangeIsRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule full = topology::static_schedule(topology::fully_connected(context.size()));
    for (const double momentum : {1.0, -0.5}) {
      try {
        end_of_run(context, {AlgorithmName::DecentLam, momentum}, 1, full);
        ADD_FAILURE() << "expected an error";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("momentum: expected from 0 to below 1, found"));
      }
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
