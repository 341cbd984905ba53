// The W that an algorithm accepts; a W that it refuses is refused on every rank, with the reason.
#include "optimizers/checks/mixing_requirements.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/momentum/decent_lam.hpp"
#include "optimizers/algorithms/momentum/quasi_global_momentum.hpp"
#include "optimizers/algorithms/registry/algorithm_choice.hpp"
#include "optimizers/checks/momentum_growth.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/families.hpp"
#include "topology/lazy_mixing.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::AlgorithmRow;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr AlgorithmName kNeedFixedMixing[] = {AlgorithmName::Extra, AlgorithmName::ExactDiffusion,
                                              AlgorithmName::D2};

DistributedOptimizerOptions with(AlgorithmName kind, std::optional<Schedule> schedule) {
  DistributedOptimizerOptions options;
  options.algorithm = kind;
  options.schedule = std::move(schedule);
  return options;
}

/// "" or why the optimizer was refused.
std::string refusal(Context& context, const DistributedOptimizerOptions& options) {
  const Point point(0);
  torch::optim::SGD sgd(point.parameters(), 0.1);
  try {
    const DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

Schedule always(const MixingMatrix& matrix) { return topology::static_schedule(matrix); }

/// Rank 0 hears everybody, the others rank 0: rows sum to 1, columns do not.
MixingMatrix rows_alone(int size) {
  std::vector<std::vector<WeightedRank>> rows(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    rows[0].push_back({rank, 1.0 / size});
    if (rank > 0) {
      rows[static_cast<std::size_t>(rank)] = {{0, 0.5}, {rank, 0.5}};
    }
  }
  return MixingMatrix::from_rows(rows);
}

TEST(MixingRequirements, TheDefaultsAreMet) {
  for (int size = 1; size <= 33; ++size) {
    for (const AlgorithmRow* row : optimizers::algorithms()) {
      DistributedOptimizerOptions options = with(row->name, std::nullopt);
      const Schedule mixing = optimizers::mixing_of(options, size);
      EXPECT_EQ(optimizers::why_unfit(*row, mixing), "") << row->name << ", " << size;
      if (!row->why_unfit_schedule) {
        continue;
      }
      for (const double beta : {0.3, 0.6, 0.9, 0.99}) {
        options.momentum = beta;
        EXPECT_EQ(row->why_unfit_schedule(options, mixing), "")
            << row->name << ", " << size << ", " << beta;
      }
    }
  }
}

/// The factors come from the eigenvalues of a period's matrix and agree with runs of 2,000 steps of
/// 4 ranks: a W that is symmetric in every round may diverge, and one that is not need not.
TEST(MixingRequirements, MomentumMayNotCarryDifferencesOn) {
  const auto growth = [](auto recursion_of, double beta, const Schedule& schedule) {
    return optimizers::growth_per_round(recursion_of(beta), schedule);
  };
  constexpr auto kLam = &optimizers::DecentLam::without_gradients;
  constexpr auto kQuasi = &optimizers::QuasiGlobalMomentum::without_gradients;
  constexpr double kNear = 1e-3;  // what was carried before the differences took over
  const Schedule one_peer = topology::one_peer_exponential(4);
  EXPECT_NEAR(growth(kLam, 0.9, one_peer), 1.0795, kNear);
  EXPECT_LE(growth(kLam, 0.5, one_peer), 1.0);
  EXPECT_LE(growth(kQuasi, 0.9, one_peer), 1.0);
  const Schedule cube = topology::make_schedule("one-peer-hypercube", {.size = 8});
  EXPECT_TRUE(cube.mixing_matrix(0).is_symmetric());
  EXPECT_NEAR(growth(kLam, 0.9, cube), 1.0524, kNear);
  EXPECT_LE(growth(kLam, 0.9, always(topology::ring(8))), 1.0);
  EXPECT_NEAR(growth(kLam, 0.9, always(topology::exponential(4))), 1.155, kNear);
  const MixingMatrix onward =
      MixingMatrix::from_pattern({.shape = {4}, .entries = {{0, 0.1}, {1, 0.9}}});
  EXPECT_NEAR(growth(kQuasi, 0.5, always(onward)), 1.168, kNear);
  EXPECT_LE(growth(kQuasi, 0.9, always(onward)), 1.0);
  // Differences grow so much at once that the check leaves rounds out.
  EXPECT_NEAR(growth(kLam, 0.9, always(onward)), 1.584, kNear);
}

TEST(MixingRequirements, EveryAlgorithmCanBeMade) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmRow* row : optimizers::algorithms()) {
      EXPECT_EQ(refusal(context, with(row->name, std::nullopt)), "") << row->name;
    }
  });
}

TEST(MixingRequirements, D2RefusesEigenvaluesOfAThirdBelowZero) {
  on_ranks({.at_least = 4, .at_most = 4, .layouts = {Layout::OneHost}}, [](Context& context) {
    const MixingMatrix ring = topology::ring(4);  // its smallest eigenvalue is −1/3
    EXPECT_THAT(refusal(context, with(AlgorithmName::D2, always(ring))),
                HasSubstr("every eigenvalue of W above -1/3, found -0.333333"));
    EXPECT_EQ(refusal(context, with(AlgorithmName::D2, always(topology::lazy(ring, 0.01)))), "");
    EXPECT_EQ(refusal(context, with(AlgorithmName::ExactDiffusion, always(ring))), "");
    EXPECT_EQ(refusal(context, with(AlgorithmName::Extra, always(ring))), "");
    const MixingMatrix swap =
        MixingMatrix::from_pattern({.shape = {4}, .entries = {{1, 0.5}, {3, 0.5}}});
    EXPECT_THAT(refusal(context, with(AlgorithmName::Extra, always(swap))),
                HasSubstr("every eigenvalue of W above -1, found -1;"));
    EXPECT_EQ(refusal(context, with(AlgorithmName::ExactDiffusion, always(swap))), "");
  });
}

TEST(MixingRequirements, CorrectionsNeedOneSymmetricW) {
  on_ranks(some_ranks(4), [](Context& context) {
    const int n = context.size();
    const MixingMatrix directed = topology::ring(n, topology::RingStyle::Left);
    const MixingMatrix symmetric = topology::lazy(topology::ring(n));
    for (const AlgorithmName kind : kNeedFixedMixing) {
      EXPECT_THAT(refusal(context, with(kind, always(directed))),
                  HasSubstr("W(0, 1) = 0.5 and W(1, 0) = 0"));
      EXPECT_THAT(refusal(context, with(kind, topology::cycle({symmetric, symmetric}))),
                  HasSubstr("a period of 2 rounds"));
      EXPECT_EQ(refusal(context, with(kind, always(symmetric))), "");
      DistributedOptimizerOptions options = with(kind, std::nullopt);
      options.plans = [&](std::int64_t) { return NeighborPlan::alone(context.rank(), n); };
      EXPECT_THAT(refusal(context, options), HasSubstr("the same W in every round"));

      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), 0.1);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                     with(kind, std::nullopt));
      EXPECT_THROW(optimizer.set_next_plan(NeighborPlan::alone(context.rank(), n)),
                   InvalidArgument);
    }
    const MixingMatrix heavy = MixingMatrix::from_pattern(
        {.shape = {n}, .entries = {{0, 0.75}, {1, 0.25}, {n - 1, 0.25}}});
    EXPECT_THAT(refusal(context, with(AlgorithmName::ExactDiffusion, always(heavy))),
                HasSubstr("row 0 sums to 1.25"));
  });
}

TEST(MixingRequirements, TrackingNeedsBothSumsAndPushSumColumns) {
  on_ranks(some_ranks(3), [](Context& context) {
    const int n = context.size();
    const Schedule good = topology::one_peer_exponential(n);
    const Schedule late =
        topology::cycle({topology::exponential(n), topology::ring(n), rows_alone(n)});
    const Schedule columns = always(rows_alone(n).transposed());
    EXPECT_EQ(refusal(context, with(AlgorithmName::GradientTracking, good)), "");
    EXPECT_THAT(refusal(context, with(AlgorithmName::GradientTracking, late)),
                HasSubstr("found in round 2: column 0 sums to"));
    EXPECT_THAT(refusal(context, with(AlgorithmName::GradientTracking, columns)),
                HasSubstr("found in round 0: row 0 sums to"));
    EXPECT_EQ(refusal(context, with(AlgorithmName::PushSum, columns)), "");
    EXPECT_THAT(refusal(context, with(AlgorithmName::PushSum, late)),
                HasSubstr("each rank hands out all of what it has; found in round 2: column 0"));
    // Rank 0 gives everything away and gets nothing.
    std::vector<double> values(static_cast<std::size_t>(n) * n, 0.0);
    values[static_cast<std::size_t>(n)] = 1.0;
    for (int rank = 1; rank < n; ++rank) {
      values[static_cast<std::size_t>(rank) * n + rank] = 1.0;
    }
    EXPECT_THAT(
        refusal(context, with(AlgorithmName::PushSum, always(MixingMatrix::from_dense(n, values)))),
        HasSubstr("row 0 sums to 0"));
  });
}

/// Every rank keeps half and hears half of the one before; the last one keeps `extra` more.
MixingMatrix heavy_ring(int size, double extra) {
  std::vector<std::vector<WeightedRank>> rows(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    rows[static_cast<std::size_t>(rank)] = {{rank, rank == size - 1 ? 0.5 + extra : 0.5},
                                            {(rank + size - 1) % size, 0.5}};
  }
  return MixingMatrix::from_rows(rows);
}

/// Rows that sum to 1 and drive ranks apart.
MixingMatrix away_from_the_next(int size) {
  std::vector<std::vector<WeightedRank>> rows(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    rows[static_cast<std::size_t>(rank)] = {{rank, 2.0}, {(rank + 1) % size, -1.0}};
  }
  return MixingMatrix::from_rows(rows);
}

TEST(MixingRequirements, AveragesNeedRowsThatSumToOneUnlessOthersAreAskedFor) {
  on_ranks(some_ranks(2), [](Context& context) {
    const int n = context.size();
    const std::string last = fmt::format("row {} sums to 1.5", n - 1);
    for (const AlgorithmRow* row : optimizers::algorithms()) {
      if (row->mixing.stochastic != optimizers::Stochastic::Averages) {
        continue;
      }
      DistributedOptimizerOptions options = with(row->name, always(heavy_ring(n, 0.5)));
      options.momentum = 0.0;
      for (const char* momentum : {"outer_momentum", "acceleration"}) {
        if (row->reads(momentum)) {
          options.numbers[momentum] = 0.0;
        }
      }
      EXPECT_THAT(refusal(context, options), HasSubstr(last)) << row->name;
      EXPECT_THAT(refusal(context, options), HasSubstr("row_sums = RowSums::Any")) << row->name;
      options.schedule = topology::cycle({heavy_ring(n, 0.0), heavy_ring(n, -0.25)});
      EXPECT_THAT(refusal(context, options), HasSubstr("found in round 1: row")) << row->name;
      options.row_sums = optimizers::RowSums::Any;
      EXPECT_EQ(refusal(context, options), "") << row->name;
      options.schedule = always(away_from_the_next(n));
      EXPECT_EQ(refusal(context, options), "") << row->name;
      options.row_sums = optimizers::RowSums::One;
      EXPECT_THAT(refusal(context, options),
                  AllOf(HasSubstr("expects every eigenvalue of W within the unit circle"),
                        HasSubstr("(W(0, 1) = -1)")))
          << row->name;
      options.schedule = always(heavy_ring(n, 5e-7));  // as weights in float32 have it
      EXPECT_EQ(refusal(context, options), "") << row->name;
    }
    // Gradients are averaged over all ranks, whatever the schedule says.
    EXPECT_EQ(refusal(context, with(AlgorithmName::GradientAllreduce, always(heavy_ring(n, 0.5)))),
              "");
    DistributedOptimizerOptions options;
    options.row_sums = static_cast<optimizers::RowSums>(9);
    EXPECT_THAT(refusal(context, options),
                HasSubstr("row_sums: expected a value of RowSums, found 9"));
  });
}

TEST(MixingRequirements, PlansOfOneRoundAreAverages) {
  on_ranks(some_ranks(2), [](Context& context) {
    const MixingMatrix matrix = heavy_ring(context.size(), 0.5);
    const AlgorithmRow& row = optimizers::row_of(AlgorithmName::AdaptThenCombine);
    NeighborPlan plan = matrix.plan_for(context.size() - 1);
    EXPECT_THAT(optimizers::why_no_average(row, plan),
                HasSubstr(fmt::format("row {} sums to 1.5", context.size() - 1)));
    EXPECT_EQ(optimizers::why_no_average(row, matrix.plan_for(0)), "");
    EXPECT_EQ(optimizers::why_no_average(optimizers::row_of(AlgorithmName::PushSum), plan), "");
    // Its receivers do not see a sender's weights.
    NeighborPlan weighing = matrix.plan_for(0);
    weighing.destinations.front().weight = 2.0;
    EXPECT_THAT(optimizers::why_no_average(row, weighing),
                HasSubstr(fmt::format("found that rank 0 sends to rank {} with weight 2",
                                      weighing.destinations.front().rank)));
    plan.destinations.clear();
    EXPECT_THAT(optimizers::why_no_average(row, plan), HasSubstr("sums to 1.5"));
    plan.sources.clear();
    plan.self_weight = 0.5;  // nobody is heard: it is all there is
    EXPECT_THAT(optimizers::why_no_average(row, plan), HasSubstr("sums to 0.5 "));

    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), 0.1);
    {
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point);
      if (context.rank() == context.size() - 1) {
        EXPECT_THROW(optimizer.set_next_plan(matrix.plan_for(context.rank())), InvalidArgument);
      }
    }
    DistributedOptimizer other(context.shared_from_this(), sgd, point,
                               {.row_sums = optimizers::RowSums::Any});
    other.set_next_plan(matrix.plan_for(context.rank()));
  });
}

TEST(MixingRequirements, OneRanksRefusalIsEveryRanks) {
  on_ranks(some_ranks(3), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), 0.1);
    const int n = context.size();
    const bool is_odd_one = context.rank() == n - 1;
    const MixingMatrix matrix = is_odd_one ? rows_alone(n) : topology::ring(n);
    try {
      const DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                           with(AlgorithmName::GradientTracking, always(matrix)));
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(is_odd_one) << error.what();
    } catch (const PeerFailure& error) {
      EXPECT_FALSE(is_odd_one);
      EXPECT_EQ(error.rank(), n - 1);
      EXPECT_THAT(error.what(), HasSubstr("gradient_tracking expects"));
    }
  });
}

TEST(MixingRequirements, NumbersAndTypesThatAnAlgorithmCannotUse) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmName kind :
         {AlgorithmName::Extra, AlgorithmName::ExactDiffusion, AlgorithmName::D2,
          AlgorithmName::GradientTracking, AlgorithmName::DecentLam,
          AlgorithmName::QuasiGlobalMomentum}) {
      DistributedOptimizerOptions options = with(kind, std::nullopt);
      options.num_steps_per_communication = 2;
      EXPECT_THAT(refusal(context, options), HasSubstr("expects 1"));
      EXPECT_THAT(refusal(context, options), HasSubstr("found 2"));
    }
    DistributedOptimizerOptions options = with(AlgorithmName::GossipPga, std::nullopt);
    options.global_period_rounds = 0;
    EXPECT_THAT(refusal(context, options), HasSubstr("expected at least 1, found 0"));
    options = with(AlgorithmName::AdaptThenCombine, std::nullopt);
    options.momentum = 0.5;
    EXPECT_THAT(refusal(context, options),
                HasSubstr("momentum: expected dmsgd, decent_lam or quasi_global_momentum, found "
                          "adapt_then_combine, which has none"));
    options.momentum = 0.0;
    EXPECT_EQ(refusal(context, options), "");
    options.global_period_rounds = 3;
    EXPECT_THAT(refusal(context, options), HasSubstr("global_period_rounds: expected gossip_pga"));
    options = with(AlgorithmName::AdaptThenCombine, topology::one_peer_exponential(context.size()));
    options.plans = [&](std::int64_t) {
      return NeighborPlan::alone(context.rank(), context.size());
    };
    EXPECT_THAT(refusal(context, options), HasSubstr("found both"));

    Bag bag;
    bag.add("weight", at::zeros({3}, at::kBFloat16));
    torch::optim::SGD sgd(bag.parameters(), 0.1);
    try {
      const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                           with(AlgorithmName::PushSum, std::nullopt));
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("parameter 'weight': push_sum expects float32 or float64"));
      EXPECT_THAT(error.what(), HasSubstr("found bfloat16[3]"));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
