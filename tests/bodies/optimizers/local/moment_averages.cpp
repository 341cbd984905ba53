// Adapt-then-combine and adapt-with-combine around Adam and its like whose moments are averaged too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/accum_adam.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kAdamRate = 0.05;

DistributedOptimizerOptions moment_options(const Schedule& schedule, double moments,
                                           const char* algorithm = "atc") {
  DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.schedule = schedule;
  options.bucket_bytes = 64;
  options.numbers["average_moments"] = moments;
  return options;
}

/// x, m and v of all ranks, one row each.
struct StackedAdam {
  explicit StackedAdam(int size)
      : x(starting_points(size, Start::Different)), m(at::zeros_like(x)), v(at::zeros_like(x)) {}

  void step(const at::Tensor& w, int moments, double decay, bool averages_first) {
    const at::Tensor g = gradients(x);
    if (averages_first) {
      average(w, moments);
    }
    ++steps;
    x = (1.0 - kAdamRate * decay) * x;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g.square();
    const at::Tensor m_hat = m / (1.0 - std::pow(0.9, steps));
    const at::Tensor v_hat = v / (1.0 - std::pow(0.999, steps));
    x = x - kAdamRate * m_hat / (v_hat.sqrt() + 1e-8);
    if (!averages_first) {
      average(w, moments);
    }
  }

  void average(const at::Tensor& w, int moments) {
    x = w.mm(x);
    m = moments >= 1 ? w.mm(m) : m;
    v = moments >= 2 ? w.mm(v) : v;
  }

  at::Tensor x;
  at::Tensor m;
  at::Tensor v;
  int steps = 0;
};

template <typename Adam, typename AdamOptions>
void expect_moment_equations(Context& context, const char* algorithm, double decay) {
  const Schedule schedule = topology::one_peer_exponential(context.size());
  const bool averages_first = std::string(algorithm) == "awc";
  for (const int moments : averages_first ? std::vector{1, 2} : std::vector{0, 1, 2}) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(static_cast<std::uint64_t>(context.rank()));
    Adam adam(point.parameters(), AdamOptions(kAdamRate).weight_decay(decay));
    DistributedOptimizer optimizer(context.shared_from_this(), adam, point,
                                   moment_options(schedule, moments, algorithm));
    StackedAdam expected(context.size());
    for (int step = 0; step < 12; ++step) {
      train(optimizer, point, problem);
      expected.step(dense(schedule.mixing_matrix(step)), moments, decay, averages_first);
      EXPECT_EQ(difference(point.x(), expected.x[context.rank()], 1e-10), "")
          << algorithm << ", " << moments << ", " << step;
    }
  }
}

TEST(MomentAverages, FollowTheirEquations) {
  on_ranks(some_ranks(1), [](Context& context) {
    for (const char* algorithm : {"atc", "awc"}) {
      expect_moment_equations<torch::optim::Adam, torch::optim::AdamOptions>(context, algorithm,
                                                                             0.0);
      expect_moment_equations<torch::optim::AdamW, torch::optim::AdamWOptions>(context, algorithm,
                                                                               0.1);
    }
  });
}

/// One state everywhere.
TEST(MomentAverages, OverAllRanksLeaveOneState) {
  on_ranks(some_ranks(2), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    optimizers::AccumAdamW adam(point.parameters(), optimizers::AccumAdamWOptions(kAdamRate));
    const auto full = topology::static_schedule(topology::fully_connected(context.size()));
    DistributedOptimizer optimizer(context.shared_from_this(), adam, point,
                                   moment_options(full, 2.0));
    for (int step = 0; step < 9; ++step) {
      train(optimizer, point, problem);
    }
    const auto& state = static_cast<const optimizers::AccumAdamParamState&>(
        *adam.state().at(point.first.unsafeGetTensorImpl()));
    for (const at::Tensor& own : {state.exp_avg, state.exp_avg_sq}) {
      at::Tensor mean = own.clone().contiguous();
      ops::allreduce(context, optimizers::view_of(mean));
      EXPECT_EQ(difference(own, mean, 1e-14), "");
      EXPECT_GT(own.abs().max().item<double>(), 0.0);
    }
  });
}

/// Saved with the wrapped optimizer: a run goes on with the same bits.
void expect_to_go_on(Context& context, const char* algorithm) {
  const LeastSquares problem = LeastSquares::of_rank(context.rank());
  const auto options =
      moment_options(topology::one_peer_exponential(context.size()), 2.0, algorithm);
  const Point point(static_cast<std::uint64_t>(context.rank()));
  torch::optim::Adam adam(point.parameters(), torch::optim::AdamOptions(kAdamRate));
  DistributedOptimizer optimizer(context.shared_from_this(), adam, point, options);
  const Point other(0);
  torch::optim::Adam other_adam(other.parameters(), torch::optim::AdamOptions(kAdamRate));
  DistributedOptimizer resumed(context.shared_from_this(), other_adam, other, options);
  for (int step = 0; step < 5; ++step) {
    train(optimizer, point, problem);
  }
  std::stringstream stream;
  torch::serialize::OutputArchive saved;
  optimizer.save(saved);
  saved.save_to(stream);
  torch::serialize::InputArchive read;
  read.load_from(stream);
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < point.parameters().size(); ++i) {
      other.parameters()[i].copy_(point.parameters()[i]);
    }
  }
  resumed.load(read);
  for (int step = 0; step < 5; ++step) {
    train(optimizer, point, problem);
    train(resumed, other, problem);
  }
  EXPECT_SAME(other.x(), point.x());
}

TEST(MomentAverages, GoOnFromWhatIsSaved) {
  on_ranks(some_ranks(2), [](Context& context) {
    expect_to_go_on(context, "atc");
    expect_to_go_on(context, "awc");
  });
}

/// It counts as zeros there; the others have their average with these.
TEST(MomentAverages, OfAParameterWithoutAGradientOnARankAreOfZeros) {
  on_ranks(some_ranks(2), [](Context& context) {
    const at::NoGradGuard no_grad;
    Bag bag;
    const at::Tensor common = bag.add("common", filled({3}, 1.0));
    const at::Tensor rare = bag.add("rare", filled({3}, 1.0));
    torch::optim::Adam adam(bag.parameters(), torch::optim::AdamOptions(0.1));
    DistributedOptimizer optimizer(
        context.shared_from_this(), adam, bag,
        moment_options(topology::static_schedule(topology::fully_connected(context.size())), 2.0));
    common.mutable_grad() = filled({3}, 1.0);
    if (context.rank() == 0) {
      rare.mutable_grad() = filled({3}, 1.0);
    }
    optimizer.step();
    const auto found = adam.state().find(rare.unsafeGetTensorImpl());
    EXPECT_EQ(found != adam.state().end(), context.rank() == 0);
    if (context.rank() == 0) {
      const auto& state = static_cast<const torch::optim::AdamParamState&>(*found->second);
      EXPECT_EQ(difference(state.exp_avg(), filled({3}, 0.1 / context.size()), 1e-7), "");
      EXPECT_EQ(difference(state.exp_avg_sq(), filled({3}, 0.001 / context.size()), 1e-9), "");
    }
  });
}

TEST(MomentAverages, AreRefusedWhereThereAreNone) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::Adam adam(point.parameters(), torch::optim::AdamOptions(0.1));
    const auto full = topology::static_schedule(topology::fully_connected(context.size()));
    const auto why = [&](torch::optim::Optimizer& wrapped,
                         const DistributedOptimizerOptions& options) {
      return error_of<Error>([&] {
        const DistributedOptimizer optimizer(context.shared_from_this(), wrapped, point, options);
      });
    };
    EXPECT_THAT(why(sgd, moment_options(full, 1.0)),
                HasSubstr("average_moments 1: expected an optimizer with moments, Adam, AdamW"));
    torch::optim::Adam with_maximum(point.parameters(),
                                    torch::optim::AdamOptions(0.1).amsgrad(true));
    EXPECT_THAT(why(with_maximum, moment_options(full, 2.0)),
                HasSubstr("average_moments 2: expected an optimizer with moments"));
    EXPECT_THAT(why(with_maximum, moment_options(full, 2.0)), HasSubstr("without amsgrad"));
    EXPECT_THAT(why(adam, moment_options(full, 3.0)),
                HasSubstr("average_moments: expected from 0 to below 3, found 3"));
    auto options = moment_options(full, 1.0);
    options.step_in_backward = true;
    EXPECT_THAT(why(adam, options), HasSubstr("step_in_backward: adapt_then_combine expects it to "
                                              "be off with average_moments"));
    options = moment_options(full, 1.0);
    options.numbers["consensus_rounds"] = 2.0;
    EXPECT_THAT(why(adam, options),
                HasSubstr("consensus_rounds: adapt_then_combine expects 1 with average_moments"));
    options = moment_options(full, 1.0, "awc");
    options.numbers["consensus_step_size"] = 0.5;
    EXPECT_THAT(why(adam, options), HasSubstr("consensus_step_size: adapt_with_combine expects 1 "
                                              "with average_moments"));
    options = moment_options(full, 1.0, "gossip_pga");
    EXPECT_THAT(why(adam, options), HasSubstr("numbers: expected options of gossip_pga, "));
    if (context.size() == 2) {
      const auto beyond = topology::static_schedule(
          MixingMatrix::from_rows({{{0, -0.25}, {1, 1.25}}, {{0, 0.25}, {1, 0.75}}}));
      EXPECT_THAT(why(adam, moment_options(beyond, 2.0)), HasSubstr("weights of at least 0"));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
