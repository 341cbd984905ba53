// AccumAdam and AccumAdamW: their equations, Adam where nothing is accumulated, their archives.
#include "optimizers/accum_adam.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "bluefog_cpp/error.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AccumAdam;
using optimizers::AccumAdamOptions;
using optimizers::AccumAdamW;
using optimizers::AccumAdamWOptions;
using ::testing::HasSubstr;

AccumAdamOptions language_options(std::int64_t accumulation) {
  AccumAdamOptions options(0.01);
  options.betas = {0.9, 0.98};
  options.eps = 1e-6;
  options.weight_decay = 0.1;
  options.accumulation = accumulation;
  return options;
}

at::Tensor leaf(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).requires_grad_();
}

/// One number, in double, as the equations have it.
class ByEquations {
 public:
  ByEquations(double x, bool decouples, AccumAdamOptions options)
      : x_(x), decouples_(decouples), options_(std::move(options)) {}

  double step(double gradient) {
    const auto [beta1, beta2] = options_.betas;
    if (decouples_) {
      x_ *= 1 - options_.lr * options_.weight_decay;
    } else {
      gradient += options_.weight_decay * x_;
    }
    sum_ += gradient;
    ++steps_;
    const double changes = std::ceil(static_cast<double>(steps_) / period());
    const double m = (beta1 * m_ + (1 - beta1) * gradient) / (1 - std::pow(beta1, changes));
    const double v =
        (beta2 * v_ + (1 - beta2) * gradient * gradient) / (1 - std::pow(beta2, changes));
    x_ -= options_.lr * m / (std::sqrt(v) + options_.eps);
    if (steps_ % options_.accumulation == 0) {
      const double mean = sum_ / period();
      m_ = beta1 * m_ + (1 - beta1) * mean;
      v_ = beta2 * v_ + (1 - beta2) * mean * mean;
      sum_ = 0.0;
    }
    return x_;
  }

 private:
  [[nodiscard]] double period() const { return static_cast<double>(options_.accumulation); }

  double x_;
  bool decouples_;
  AccumAdamOptions options_;
  double m_ = 0.0;
  double v_ = 0.0;
  double sum_ = 0.0;
  std::int64_t steps_ = 0;
};

template <typename Optimizer>
void expect_equations(bool decouples) {
  const at::Tensor x = leaf({1.0, -2.0});
  Optimizer optimizer({x}, language_options(3));
  ByEquations first(1.0, decouples, language_options(3));
  ByEquations second(-2.0, decouples, language_options(3));
  for (int step = 1; step <= 10; ++step) {
    x.mutable_grad() = at::tensor({std::sin(step), 0.3 * step}, at::kDouble);
    optimizer.step();
    EXPECT_CLOSE(x, at::tensor({first.step(std::sin(step)), second.step(0.3 * step)}, at::kDouble));
  }
}

TEST(AccumAdam, StepsByItsEquations) {
  on_ranks(some_ranks(), [](Context&) {
    expect_equations<AccumAdam>(false);
    expect_equations<AccumAdamW>(true);
  });
}

template <typename Own, typename Torchs>
void expect_as_torchs(Own& own, const Point& point, Torchs& torchs, const Point& other) {
  for (int step = 0; step < 8; ++step) {
    const LeastSquares problem = LeastSquares::of_rank(step % 3);
    for (const auto& [optimizer, at_point] :
         {std::pair<torch::optim::Optimizer*, const Point*>{&own, &point}, {&torchs, &other}}) {
      optimizer->zero_grad();
      problem.loss(at_point->x()).backward();
      optimizer->step();
    }
    EXPECT_CLOSE(point.x(), other.x());
  }
}

TEST(AccumAdam, WithoutAccumulationIsAdam) {
  on_ranks(some_ranks(), [](Context&) {
    const Point point(0);
    const Point other(0);
    AccumAdam own(point.parameters(), language_options(1));
    torch::optim::Adam adam(
        other.parameters(),
        torch::optim::AdamOptions(0.01).betas({0.9, 0.98}).eps(1e-6).weight_decay(0.1));
    expect_as_torchs(own, point, adam, other);

    AccumAdamWOptions options(0.01);  // the decay is AdamW's
    options.accumulation = 1;
    AccumAdamW decoupled(point.parameters(), options);
    torch::optim::AdamW adamw(other.parameters(), torch::optim::AdamWOptions(0.01));
    expect_as_torchs(decoupled, point, adamw, other);
  });
}

/// The decay, too, comes before the average.
TEST(AccumAdam, AdaptThenCombineIsAStepAndAnAverage) {
  on_ranks(some_ranks(), [](Context& context) {
    const auto plan = std::make_shared<const NeighborPlan>(
        topology::ring(context.size()).plan_for(context.rank()));
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    const Point alone(0);
    AccumAdamW wrapped(point.parameters(), language_options(2));
    AccumAdamW reference(alone.parameters(), language_options(2));
    optimizers::DistributedOptimizerOptions options;
    options.schedule = topology::static_schedule(topology::ring(context.size()));
    options.bucket_bytes = 32;
    optimizers::DistributedOptimizer optimizer(context.shared_from_this(), wrapped, point, options);
    for (int step = 0; step < 5; ++step) {
      train(optimizer, point, problem);
      reference.zero_grad();
      problem.loss(alone.x()).backward();
      reference.step();
      for (const at::Tensor& parameter : alone.parameters()) {
        ops::neighbor_allreduce(context, optimizers::view_of(parameter), plan);
      }
      EXPECT_SAME(point.x(), alone.x());
    }
  });
}

TEST(AccumAdam, AnArchiveGoesOnWithTheSameBits) {
  on_ranks(some_ranks(), [](Context&) {
    const auto run = [](AccumAdamW& optimizer, const at::Tensor& x, int from, int to) {
      for (int step = from; step < to; ++step) {
        x.mutable_grad() = at::tensor({std::cos(step), 0.1 * step}, at::kDouble);
        optimizer.step();
      }
    };
    const at::Tensor x = leaf({1.0, -2.0});
    AccumAdamW first({x}, language_options(3));
    run(first, x, 0, 4);
    std::stringstream bytes;
    torch::save(first, bytes);
    const at::Tensor y = x.detach().clone().requires_grad_();
    AccumAdamW second({y}, AccumAdamOptions(0.5));
    torch::load(second, bytes);
    const auto& read =
        static_cast<const AccumAdamOptions&>(second.param_groups().front().options());
    EXPECT_EQ(read.betas, std::pair(0.9, 0.98));
    EXPECT_EQ(read.accumulation, 3);
    EXPECT_EQ(read.get_lr(), 0.01);
    run(first, x, 4, 9);
    run(second, y, 4, 9);
    EXPECT_SAME(y, x);
  });
}

TEST(AccumAdam, AClosureIsEvaluatedOnceWithGradients) {
  on_ranks(some_ranks(), [](Context&) {
    const at::Tensor x = leaf({3.0});
    const at::Tensor without = leaf({5.0});
    AccumAdam optimizer({x, without}, language_options(2));
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor value = (x * x).sum();
      value.backward();
      return value;
    });
    EXPECT_EQ(loss.item<double>(), 9.0);
    EXPECT_LT(x.item<double>(), 3.0);
    EXPECT_EQ(without.item<double>(), 5.0);  // no gradient
  });
}

TEST(AccumAdam, OptionsOutOfRangeAreRefused) {
  on_ranks(some_ranks(), [](Context&) {
    const at::Tensor x = leaf({1.0});
    const auto refused = [&](const std::function<void(AccumAdamOptions&)>& change) {
      AccumAdamOptions options;
      change(options);
      EXPECT_THAT(error_of<InvalidArgument>([&] { AccumAdam({x}, options); }),
                  HasSubstr("AccumAdam: "));
      return error_of<InvalidArgument>([&] { AccumAdamW({x}, options); });
    };
    EXPECT_EQ(refused([](auto& options) { options.lr = -1; }),
              "AccumAdamW: lr: expected a finite number of at least 0, found -1");
    EXPECT_THAT(refused([](auto& options) { options.eps = std::nan(""); }),
                HasSubstr("eps: expected a finite number of at least 0, found nan"));
    EXPECT_THAT(refused([](auto& options) { options.weight_decay = -0.1; }),
                HasSubstr("weight_decay: expected"));
    EXPECT_THAT(refused([](auto& options) { options.betas.second = 1; }),
                HasSubstr("betas: expected a number from 0 to below 1, found 1"));
    EXPECT_THAT(refused([](auto& options) { options.accumulation = 0; }),
                HasSubstr("accumulation: expected at least 1, found 0"));
    AccumAdamOptions options;
    options.accumulation = 0;
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  AccumAdam({torch::optim::OptimizerParamGroup(
                      {x}, std::make_unique<AccumAdamOptions>(options))});
                }),
                HasSubstr("accumulation: expected at least 1, found 0"));
  });
}

TEST(AccumAdam, SparseGradientsAreRefused) {
  on_ranks(some_ranks(), [](Context&) {
    const at::Tensor x = leaf({1.0, 2.0});
    AccumAdam optimizer({x});
    x.mutable_grad() = at::ones({2}, at::kDouble).to_sparse();
    EXPECT_EQ(error_of<UnsupportedError>([&] { optimizer.step(); }),
              "AccumAdam: expected dense gradients, found sparse ones");
    EXPECT_SAME(x, at::tensor({1.0, 2.0}, at::kDouble));
  });
}

}  // namespace
}  // namespace bluefog::testing
