// Adapt-then-combine and adapt-with-combine that go a part of the way to their neighbours' average,
// or average several times in a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/consensus/distance_sketch.hpp"
#include "optimizers/bucket.hpp"
#include "optimizers/consensus.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/base_graph.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Numbers = std::map<std::string, double, std::less<>>;

constexpr double kRate = 0.05;
const AlgorithmName kAtc = AlgorithmName::AdaptThenCombine;
const AlgorithmName kAwc = AlgorithmName::AdaptWithCombine;

DistributedOptimizerOptions options_of(AlgorithmName kind, const Schedule& schedule,
                                       Numbers numbers) {
  return {
      .algorithm = kind, .schedule = schedule, .numbers = std::move(numbers), .bucket_bytes = 32};
}

std::int64_t averages_of(const DistributedOptimizer& optimizer) {
  for (const auto& [name, tensor] : optimizer.algorithm_state()) {
    if (name == "averages made") {
      return tensor.item<std::int64_t>();
    }
  }
  return -1;
}

/// One rank's training, with learning rates of its own.
struct Training {
  Training(Context& context, const DistributedOptimizerOptions& options, double rate,
           Start start = Start::Different)
      : problem(LeastSquares::of_rank(context.rank())),
        point(start == Start::Different ? static_cast<std::uint64_t>(context.rank()) : 0),
        sgd(point.parameters(), rate),
        optimizer(context.shared_from_this(), sgd, point, options) {}

  void step(double rate) {
    sgd.param_groups().front().options().set_lr(rate);
    train(optimizer, point, problem);
  }

  LeastSquares problem;
  Point point;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

/// W^κ of a step: (1 − κ) I + κ W.
at::Tensor part_of(const at::Tensor& w, double share) {
  return (1.0 - share) * at::eye(w.size(0), at::kDouble) + share * w;
}

TEST(AdaptiveConsensus, FollowsItsEquations) {
  on_ranks([](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    const Numbers numbers{{"consensus_step_size", 0.7}, {"consensus_decay", 0.5}};
    for (const AlgorithmName kind : {kAtc, kAwc}) {
      Training own(context, options_of(kind, schedule, numbers), kRate);
      at::Tensor x = starting_points(context.size(), Start::Different);
      for (int step = 0; step < 6; ++step) {
        const double rate = kRate / (1 + step);
        const at::Tensor w =
            part_of(dense(schedule.mixing_matrix(step)), 0.7 * std::sqrt(rate / kRate));
        x = kind == kAtc ? w.mm(x - rate * gradients(x)) : w.mm(x) - rate * gradients(x);
        own.step(rate);
        EXPECT_CLOSE(own.point.x(), x[context.rank()]);
      }
    }
  });
}

TEST(AdaptiveConsensus, OfOneIsTheAlgorithmItself) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    const auto end_of = [&](AlgorithmName kind, const Numbers& numbers) {
      Training own(context, options_of(kind, schedule, numbers), kRate);
      for (int step = 0; step < 5; ++step) {
        own.step(kRate);
      }
      return own.point.x().detach().clone();
    };
    // A rate that stays gives κ = 1 by the part that can do others.
    EXPECT_SAME(end_of(kAtc, {{"consensus_decay", 1.0}}), end_of(kAtc, {}));
    at::Tensor x = starting_points(context.size(), Start::Different);
    for (int step = 0; step < 5; ++step) {
      x = dense(schedule.mixing_matrix(step)).mm(x) - kRate * gradients(x);
    }
    EXPECT_CLOSE(end_of(kAwc, {{"consensus_decay", 1.0}}), x[context.rank()]);
  });
}

TEST(AdaptiveConsensus, KeepsTheMeanAndShrinksEigenvectors) {
  on_ranks(some_ranks(2), [](Context& context) {
    const int n = context.size();
    const double angle = 2.0 * M_PI / n;
    // A ring of weights 1/3 has the eigenvectors cos(2π i / n), of eigenvalue (1 + 2 cos(2π/n)) / 3.
    const double lambda = n == 2 ? 0.0 : (1.0 + 2.0 * std::cos(angle)) / 3.0;
    const Schedule schedule = topology::static_schedule(topology::ring(n));
    for (const double share : {1.0, 0.6, 0.1}) {
      Bag bag;
      const at::Tensor x =
          bag.add("x", at::full({3}, 5.0 + std::cos(angle * context.rank()), at::kDouble));
      torch::optim::SGD sgd(bag.parameters(), 0.0);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                     options_of(kAtc, schedule, {{"consensus_step_size", share}}));
      double factor = 1.0;
      for (int step = 0; step < 4; ++step) {
        x.mutable_grad() = at::zeros({3}, at::kDouble);
        optimizer.step();
        factor *= 1.0 - share + share * lambda;
        EXPECT_CLOSE(x.detach(),
                     at::full({3}, 5.0 + factor * std::cos(angle * context.rank()), at::kDouble));
      }
    }
  });
}

TEST(ConsensusControl, OfBoundZeroOverAnExactScheduleIsParallelSgd) {
  on_ranks(some_ranks(3), [](Context& context) {
    // For numbers that are no powers of two it is exact from its first round on alone.
    const Schedule schedule = topology::base_graph(context.size(), 1);
    const auto rounds = static_cast<double>(schedule.period_steps());
    for (const AlgorithmName kind : {kAtc, kAwc}) {
      Training own(context, options_of(kind, schedule, {{"consensus_rounds", rounds}}), kRate,
                   Start::Equal);
      at::Tensor x = starting_points(context.size(), Start::Equal);
      const auto mean = [](const at::Tensor& rows) { return rows.mean(0, true).expand_as(rows); };
      for (int step = 0; step < 5; ++step) {
        // Adapt-with-combine takes gradients at each rank's own point, as ever.
        x = kind == kAtc ? x - kRate * mean(gradients(x)) : mean(x) - kRate * gradients(x);
        own.step(kRate);
        EXPECT_CLOSE(own.point.x(), x[context.rank()]);
      }
      EXPECT_EQ(averages_of(own.optimizer), 5 * schedule.period_steps());
    }
  });
}

/// ‖x − J x‖ and ‖γ d‖ as the rule has them: root mean squares over ranks.
double spread(const at::Tensor& rows) {
  return (rows - rows.mean(0, true)).norm().item<double>() / std::sqrt(rows.size(0));
}

TEST(ConsensusControl, AveragesUntilRanksAreNear) {
  on_ranks(some_ranks(3), [](Context& context) {
    const int n = context.size();
    const Schedule schedule = topology::static_schedule(topology::ring(n));
    constexpr int kMost = 8;
    for (const double bound : {0.15, 0.6, 1e9}) {
      Training own(context,
                   options_of(kAtc, schedule,
                              {{"consensus_rounds", double{kMost}}, {"consensus_bound", bound}}),
                   kRate);
      at::Tensor x = starting_points(n, Start::Different);
      std::int64_t averages = 0;
      for (int step = 0; step < 6; ++step) {
        const at::Tensor moved = kRate * gradients(x);
        const double length = moved.norm().item<double>() / std::sqrt(n);
        x = x - moved;
        int made = 0;
        do {
          x = dense(schedule.mixing_matrix(step + made)).mm(x);
          ++made;
        } while (made < kMost && spread(x) > bound * length);
        averages += made;
        own.step(kRate);
        EXPECT_EQ(averages_of(own.optimizer), averages) << "bound " << bound << ", step " << step;
        EXPECT_CLOSE(own.point.x(), x[context.rank()]);
      }
    }
  });
}

TEST(ConsensusControl, GoesOnFromACheckpointWithTheSameBits) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    for (const AlgorithmName kind : {kAtc, kAwc}) {
      const auto options = options_of(kind, schedule,
                                      {{"consensus_rounds", 4.0},
                                       {"consensus_bound", 0.4},
                                       {"consensus_step_size", 0.9},
                                       {"consensus_decay", 1.0}});
      Training one(context, options, kRate);
      for (int step = 0; step < 3; ++step) {
        one.step(kRate / (1 + step));
      }
      optimizers::NamedTensors carried;
      for (const auto& [name, tensor] : one.optimizer.carried()) {
        carried.push_back({name, tensor.clone()});
      }
      Training other(context, options, kRate);
      {
        const torch::NoGradGuard no_grad;
        other.point.first.copy_(one.point.first);
        other.point.second.copy_(one.point.second);
        other.point.third.copy_(one.point.third);
      }
      other.optimizer.resume(carried, one.optimizer.step_count(), one.optimizer.round_count());
      for (int step = 3; step < 6; ++step) {
        one.step(kRate / (1 + step));
        other.step(kRate / (1 + step));
        EXPECT_SAME(other.point.x(), one.point.x());
        EXPECT_EQ(averages_of(other.optimizer), averages_of(one.optimizer));
      }
    }
  });
}

/// A rank that leaves a step out is heard of by all, also where it is no neighbour, and all go on
/// together.
TEST(ConsensusControl, ARankThatRefusesIsHeardByAll) {
  on_ranks(some_ranks(4), [](Context& context) {
    const Schedule schedule = topology::static_schedule(topology::ring(context.size()));
    for (const double bound : {0.3, 1e-9}) {
      Training own(
          context,
          options_of(kAtc, schedule, {{"consensus_rounds", 3.0}, {"consensus_bound", bound}}),
          kRate);
      own.step(kRate);
      if (context.rank() == 1) {
        own.optimizer.refuse_step("no batch");
      } else {
        own.optimizer.zero_grad();
        own.problem.loss(own.point.x()).backward();
        EXPECT_THROW(own.optimizer.step(), PeerFailure);
      }
      for (int step = 0; step < 3; ++step) {
        own.step(kRate);
      }
      EXPECT_EQ(own.optimizer.step_count(), 5);
    }
  });
}

std::string refusal(Context& context, const DistributedOptimizerOptions& options) {
  try {
    const Training own(context, options, kRate);
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(AdaptiveConsensus, WrongOptionsAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const int n = context.size();
    const Schedule ring = topology::static_schedule(topology::ring(n));
    EXPECT_THAT(refusal(context, options_of(kAtc, ring, {{"consensus_step_size", 0.0}})),
                HasSubstr("consensus_step_size: expected from 0.001 to below 2, found 0"));
    EXPECT_THAT(refusal(context, options_of(kAwc, ring, {{"consensus_rounds", 1.5}})),
                HasSubstr("consensus_rounds: expected a whole number, found 1.5"));
    EXPECT_THAT(refusal(context, options_of(kAwc, ring, {{"consensus_bound", -1.0}})),
                HasSubstr("consensus_bound: expected from 0 to below"));
    EXPECT_THAT(refusal(context, options_of(kAwc, ring, {{"consensus_bound", 0.5}})),
                HasSubstr("consensus_bound 0.5: expected consensus_rounds above 1"));
    EXPECT_THAT(refusal(context, options_of(AlgorithmName::Extra, ring, {{"consensus_rounds", 2}})),
                HasSubstr("numbers: expected options of extra, which has none, found"));
    // Its eigenvalue of −0.8 becomes 1 − κ − 0.8 κ, below −1 for κ above 1.11.
    const std::vector<WeightedEdge> edges{{.source = 0, .destination = 0, .weight = 0.1},
                                          {.source = 1, .destination = 0, .weight = 0.9},
                                          {.source = 1, .destination = 1, .weight = 0.1},
                                          {.source = 0, .destination = 1, .weight = 0.9}};
    const auto pairs = MixingMatrix::from_edges(2, edges);
    if (n == 2) {
      EXPECT_THAT(
          refusal(context, options_of(kAtc, topology::static_schedule(pairs),
                                      {{"consensus_step_size", 1.5}})),
          AllOf(HasSubstr("consensus_step_size 1.5: adapt_then_combine expects differences"),
                HasSubstr("found that they grow by a factor of 1.7 a round")));
      EXPECT_EQ(refusal(context, options_of(kAtc, topology::static_schedule(pairs),
                                            {{"consensus_step_size", 1.05}})),
                "");
    }
    DistributedOptimizerOptions options = options_of(kAtc, ring, {{"consensus_decay", 1.0}});
    options.step_in_backward = true;
    EXPECT_THAT(refusal(context, options),
                HasSubstr("step_in_backward: expected consensus_step_size 1, consensus_decay 0"));
    options = {.algorithm = kAtc, .numbers = {{"consensus_rounds", 2.0}}};
    options.plans = [&](std::int64_t) { return NeighborPlan::alone(context.rank(), n); };
    EXPECT_THAT(refusal(context, options),
                HasSubstr("consensus_rounds 2: adapt_then_combine expects a schedule"));
  });
}

/// E‖S x‖² = ‖x‖²: the mean of many vectors' lengths is theirs.
TEST(DistanceSketch, KeepsLengthsOnAverage) {
  on_ranks(some_ranks(2), [](Context& context) {
    Bag bag;
    bag.add("x", random({3000}, static_cast<std::uint64_t>(context.rank())));
    std::vector<optimizers::Bucket> buckets =
        optimizers::make_buckets(optimizers::named_parameters(bag), 1 << 20, 1 << 20,
                                 [](std::int64_t count, const at::TensorOptions& options) {
                                   return at::zeros({count}, options);
                                 });
    const optimizers::DistanceSketch sketch(context, buckets);
    double ratios = 0.0;
    constexpr int kVectors = 40;
    for (int i = 0; i < kVectors; ++i) {
      const torch::NoGradGuard no_grad;
      buckets[0].flat().copy_(random({buckets[0].flat().numel()}, 100U + i));
      const at::Tensor found = sketch.of(0);
      ASSERT_EQ(found.numel(), 256);
      ratios += (found.square().sum() / buckets[0].flat().square().sum()).item<double>();
    }
    // Each has the variance 2/256.
    EXPECT_NEAR(ratios / kVectors, 1.0, 5 * std::sqrt(2.0 / 256 / kVectors));
    std::size_t issued = 0;
    const auto together = sketch.distance(context.rank(), issued);
    EXPECT_EQ(issued, optimizers::DistanceSketch::kCalls);
    EXPECT_EQ(together.distance, 0.0);
    EXPECT_EQ(together.mean, mean_rank(context));
  });
}

}  // namespace
}  // namespace bluefog::testing
