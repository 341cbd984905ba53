// Stepping a torch optimizer bucket by bucket is stepping it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <stdexcept>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/accum_adam.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Groups&)>;

std::map<std::string, MakeOptimizer> makers() {
  namespace optim = torch::optim;
  return {
      {"SGD",
       [](const Groups& groups) {
         const auto options =
             optim::SGDOptions(0.01).momentum(0.9).nesterov(true).weight_decay(0.1);
         return std::make_unique<optim::SGD>(groups, options);
       }},
      {"Adam",
       [](const Groups& groups) {
         const auto options = optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.1);
         return std::make_unique<optim::Adam>(groups, options);
       }},
      {"AdamW",
       [](const Groups& groups) {
         return std::make_unique<optim::AdamW>(groups, optim::AdamWOptions(0.01));
       }},
      {"RMSprop",
       [](const Groups& groups) {
         const auto options = optim::RMSpropOptions(0.01).momentum(0.5).centered(true);
         return std::make_unique<optim::RMSprop>(groups, options);
       }},
      {"Adagrad",
       [](const Groups& groups) {
         return std::make_unique<optim::Adagrad>(groups, optim::AdagradOptions(0.01).lr_decay(0.1));
       }},
      {"AccumAdamW",
       [](const Groups& groups) {
         return std::make_unique<optimizers::AccumAdamW>(groups,
                                                         optimizers::AccumAdamWOptions(0.01));
       }},
  };
}

/// Two groups, out of the order of registration, each with options of its own.
std::unique_ptr<torch::optim::Optimizer> with_two_groups(const MakeOptimizer& make,
                                                         const Point& point) {
  auto optimizer = make({torch::optim::OptimizerParamGroup({point.third, point.first}),
                         torch::optim::OptimizerParamGroup({point.second})});
  optimizer->param_groups()[1].options().set_lr(0.1);
  return optimizer;
}

void train_alone(torch::optim::Optimizer& optimizer, const Point& point,
                 const LeastSquares& problem) {
  optimizer.zero_grad();
  problem.loss(point.x()).backward();
  optimizer.step();
}

TEST(WrappedOptimizers, BucketByBucketIsTheSameStep) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const auto& [name, make] : makers()) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      const Point alone(0);
      const auto wrapped = with_two_groups(make, point);
      const auto reference = with_two_groups(make, alone);
      DistributedOptimizerOptions options;
      options.algorithm = AlgorithmName::None;
      options.bucket_bytes = 32;
      DistributedOptimizer optimizer(context.shared_from_this(), *wrapped, point, options);
      for (int step = 0; step < 4; ++step) {
        wrapped->param_groups()[0].options().set_lr(0.01 * (step + 1));
        reference->param_groups()[0].options().set_lr(0.01 * (step + 1));
        train(optimizer, point, problem);
        train_alone(*reference, alone, problem);
        EXPECT_SAME(point.x(), alone.x()) << name;
      }
      EXPECT_EQ(wrapped->param_groups()[0].params().size(), 2) << name;
    }
  });
}

/// A step of the plain optimizer, then the average of its result: the same bits.
TEST(WrappedOptimizers, AdaptThenCombineIsAStepAndAnAverage) {
  on_ranks(some_ranks(), [](Context& context) {
    const auto plan = std::make_shared<const NeighborPlan>(
        topology::ring(context.size()).plan_for(context.rank()));
    for (const auto& [name, make] : makers()) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      const Point alone(0);
      const auto wrapped = with_two_groups(make, point);
      const auto reference = with_two_groups(make, alone);
      DistributedOptimizerOptions options;
      options.schedule = topology::static_schedule(topology::ring(context.size()));
      options.bucket_bytes = 32;
      DistributedOptimizer optimizer(context.shared_from_this(), *wrapped, point, options);
      for (int step = 0; step < 4; ++step) {
        train(optimizer, point, problem);
        train_alone(*reference, alone, problem);
        for (const at::Tensor& parameter : alone.parameters()) {
          ops::neighbor_allreduce(context, optimizers::view_of(parameter), plan);
        }
        EXPECT_SAME(point.x(), alone.x()) << name;
      }
    }
  });
}

TEST(WrappedOptimizers, AClosureIsEvaluatedOnce) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmName kind :
         {AlgorithmName::AdaptThenCombine, AlgorithmName::None, AlgorithmName::GradientAllreduce,
          AlgorithmName::AdaptWithCombine}) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      const Point other(0);
      torch::optim::SGD sgd(point.parameters(), 0.1);
      torch::optim::SGD other_sgd(other.parameters(), 0.1);
      DistributedOptimizerOptions options;
      options.algorithm = kind;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      DistributedOptimizer other_optimizer(context.duplicate(), other_sgd, other, options);
      int evaluations = 0;
      const at::Tensor loss = optimizer.step([&] {
        ++evaluations;
        optimizer.zero_grad();
        at::Tensor value = problem.loss(point.x());
        value.backward();
        return value;
      });
      EXPECT_EQ(evaluations, 1);
      EXPECT_SAME(loss, problem.loss(other.x()));
      train(other_optimizer, other, problem);
      EXPECT_SAME(point.x(), other.x());
    }
  });
}

TEST(WrappedOptimizers, LbfgsStepsAsAWhole) {
  on_ranks(some_ranks(), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    const Point alone(0);
    const auto settings = torch::optim::LBFGSOptions(0.5).max_iter(4);
    torch::optim::LBFGS lbfgs(point.parameters(), settings);
    torch::optim::LBFGS reference(alone.parameters(), settings);
    const auto closure_of = [&problem](torch::optim::Optimizer& optimizer, const Point& at_point) {
      return [&optimizer, &at_point, &problem] {
        optimizer.zero_grad();
        at::Tensor value = problem.loss(at_point.x());
        value.backward();
        return value;
      };
    };
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::None;
    options.bucket_bytes = 32;
    DistributedOptimizer optimizer(context.shared_from_this(), lbfgs, point, options);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor loss = optimizer.step(closure_of(lbfgs, point));
      EXPECT_SAME(loss, reference.step(closure_of(reference, alone)));
      EXPECT_SAME(point.x(), alone.x());
    }
  });
}

TEST(WrappedOptimizers, LbfgsIsRefusedWhereItsEvaluationsHaveNoMeaning) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmName kind :
         {AlgorithmName::GradientAllreduce, AlgorithmName::AdaptWithCombine, AlgorithmName::Extra,
          AlgorithmName::ExactDiffusion, AlgorithmName::D2, AlgorithmName::GradientTracking,
          AlgorithmName::PushSum}) {
      const Point point(0);
      torch::optim::LBFGS lbfgs(point.parameters());
      DistributedOptimizerOptions options;
      options.algorithm = kind;
      const std::string text = error_of<InvalidArgument>(
          [&] { DistributedOptimizer(context.shared_from_this(), lbfgs, point, options); });
      EXPECT_THAT(text, AllOf(HasSubstr("LBFGS"), HasSubstr(std::string(name_of(kind)))));
    }
    const Point point(0);
    torch::optim::LBFGS lbfgs(point.parameters());
    DistributedOptimizerOptions by_bucket;
    by_bucket.stepping = optimizers::Stepping::ByBucket;
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  DistributedOptimizer(context.shared_from_this(), lbfgs, point, by_bucket);
                }),
                HasSubstr("stepping: "));
  });
}

/// Steps by the gradients at the second of two evaluations.
class TwoEvaluations final : public torch::optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure) override {
    (void)closure();
    const at::Tensor loss = closure();
    (void)SGD::step(nullptr);
    return loss;
  }
};

TEST(WrappedOptimizers, AnotherThatEvaluatesSeveralTimesIsKnownByItsOption) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    TwoEvaluations twice(point.parameters(), torch::optim::SGDOptions(0.05));
    DistributedOptimizerOptions options;
    options.reevaluates = true;
    {
      DistributedOptimizer optimizer(context.shared_from_this(), twice, point, options);
      int evaluations = 0;
      const at::Tensor loss = optimizer.step([&] {
        optimizer.zero_grad();
        at::Tensor value = LeastSquares::of_rank(0).loss(point.x());
        value.backward();
        ++evaluations;
        return value;
      });
      EXPECT_EQ(evaluations, 2);
      EXPECT_GT(loss.item<double>(), 0.0);
    }
    options.algorithm = AlgorithmName::AdaptWithCombine;
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  DistributedOptimizer(context.shared_from_this(), twice, point, options);
                }),
                HasSubstr("evaluates the model several times"));
  });
}

/// All parameters in one call, before the first bucket travels: the same steps.
TEST(WrappedOptimizers, SteppedAsAWholeTheyDoTheSame) {
  on_ranks({.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}}, [](Context& context) {
    for (const AlgorithmName kind :
         {AlgorithmName::Extra, AlgorithmName::ExactDiffusion, AlgorithmName::D2,
          AlgorithmName::GradientTracking, AlgorithmName::PushSum, AlgorithmName::GossipPga,
          AlgorithmName::LocalSgd, AlgorithmName::DmSgd, AlgorithmName::DecentLam,
          AlgorithmName::QuasiGlobalMomentum}) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      const Point other(0);
      torch::optim::SGD sgd(point.parameters(), 0.05);
      torch::optim::SGD other_sgd(other.parameters(), 0.05);
      DistributedOptimizerOptions options;
      options.algorithm = kind;
      options.bucket_bytes = 32;
      DistributedOptimizer by_bucket(context.shared_from_this(), sgd, point, options);
      options.stepping = optimizers::Stepping::Whole;
      DistributedOptimizer whole(context.shared_from_this(), other_sgd, other, options);
      for (int step = 0; step < 3; ++step) {
        train(by_bucket, point, problem);
        train(whole, other, problem);
        EXPECT_SAME(other.x(), point.x()) << name_of(kind);
      }
    }
  });
}

TEST(WrappedOptimizers, ChangedGroupsAreRefusedOnAllRanks) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(0);
    const Point other(1);
    torch::optim::SGD sgd(point.parameters(), 0.1);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point);
    if (context.rank() == 0) {
      sgd.add_param_group(other.parameters());
      EXPECT_THROW(optimizer.step(), StateError);
    } else {
      try {
        optimizer.step();
      } catch (const PeerFailure& error) {  // those that wait for rank 0
        EXPECT_EQ(error.rank(), 0);
        EXPECT_THAT(error.what(), HasSubstr("parameter groups"));
      }
    }
  });
}

/// Gradient all-reduce has made its calls when the step begins: a rank that refuses the step has
/// none to refuse, and later calls of all ranks still match.
TEST(WrappedOptimizers, AStepThatIsRefusedAfterTheBackwardPassLeavesRanksInStep) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(0);
    const Point other(1);
    torch::optim::SGD sgd(point.parameters(), 0.1);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::GradientAllreduce;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    optimizer.zero_grad();
    LeastSquares::of_rank(context.rank()).loss(point.x()).backward();
    if (context.rank() == 0) {
      sgd.add_param_group(other.parameters());
      EXPECT_THROW(optimizer.step(), StateError);
    } else {
      optimizer.step();
    }
    at::Tensor ones = at::ones({1}, at::kDouble);
    ops::allreduce(context, optimizers::view_of(ones));
    EXPECT_EQ(ones.item<double>(), 1.0);
  });
}

TEST(WrappedOptimizers, AnEmptyClosureIsRefusedOnAllRanks) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), 0.1);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   full_averaging(context, AlgorithmName::AdaptThenCombine));
    try {
      if (context.rank() == 0) {
        optimizer.step(optimizers::Closure());
      } else {
        optimizer.step([] { return at::Tensor(); });
      }
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("found an empty one"));
    }
    at::Tensor ones = at::ones({1}, at::kDouble);
    ops::allreduce(context, optimizers::view_of(ones));
    EXPECT_EQ(ones.item<double>(), 1.0);
  });
}

TEST(WrappedOptimizers, AClosureThatThrowsIsHeardByTheOthersAndLeavesRanksInStep) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const AlgorithmName kind :
         {AlgorithmName::AdaptThenCombine, AlgorithmName::GradientAllreduce}) {
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), 0.1);
      DistributedOptimizerOptions options;
      options.algorithm = kind;
      options.schedule = topology::static_schedule(topology::fully_connected(context.size()));
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const auto closure = [&] {
        optimizer.zero_grad();
        at::Tensor loss = problem.loss(point.x());
        loss.backward();
        return loss;
      };
      optimizer.step(closure);
      if (context.rank() == 0) {
        EXPECT_THROW(optimizer.step([]() -> at::Tensor { throw std::runtime_error("no batch"); }),
                     std::runtime_error);
      } else {
        try {
          optimizer.step(closure);
          ADD_FAILURE() << "expected to hear of rank 0";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), ::testing::HasSubstr("no batch"));
        }
      }
      ops::barrier(context);
      at::Tensor ones = at::ones({1}, at::kDouble);
      ops::allreduce(context, optimizers::view_of(ones));
      EXPECT_EQ(ones.item<double>(), 1.0);
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
