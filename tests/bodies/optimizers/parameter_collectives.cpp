#include "optimizers/parameter_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/accum_adam.hpp"
#include "optimizers/consensus.hpp"
#include "optimizers/optimizer_state.hpp"
#include "tests/bodies/optimizers/support.hpp"

namespace bluefog::testing {
namespace {

struct Mixed : torch::nn::Module {
  explicit Mixed(double value) {
    weight = register_parameter(
        "weight", at::full({2, 3, 2, 2}, value).contiguous(at::MemoryFormat::ChannelsLast));
    frozen = register_parameter("frozen", at::full({5}, value, at::kDouble), false);
    statistics = register_buffer("statistics", at::full({4}, value));
    count = register_buffer("count", at::full({}, value, at::kLong));
  }
  at::Tensor weight;
  at::Tensor frozen;
  at::Tensor statistics;
  at::Tensor count;
};

TEST(ParameterCollectives, BroadcastFromEveryRoot) {
  on_ranks(some_ranks(), [](Context& context) {
    for (int root = 0; root < context.size(); ++root) {
      Mixed model(context.rank());
      optimizers::broadcast_parameters(context, model, root);
      EXPECT_SAME(model.weight, at::full({2, 3, 2, 2}, double(root)));
      EXPECT_TRUE(model.weight.is_contiguous(at::MemoryFormat::ChannelsLast));
      EXPECT_SAME(model.frozen, at::full({5}, double(root)));
      EXPECT_EQ(model.count.item<int>(), context.rank());
      optimizers::broadcast_buffers(context, model, root);
      EXPECT_SAME(model.statistics, at::full({4}, double(root)));
      EXPECT_EQ(model.count.item<int>(), root);
    }
  });
}

TEST(ParameterCollectives, MeanAndConsensusDistance) {
  on_ranks(some_ranks(), [](Context& context) {
    const int n = context.size();
    const double mean = (n - 1) / 2.0;
    double variance = 0;
    for (int rank = 0; rank < n; ++rank) {
      variance += (rank - mean) * (rank - mean) / n;
    }
    Mixed model(context.rank());
    // 29 elements, each at its rank's value.
    EXPECT_NEAR(optimizers::consensus_distance(context, model), std::sqrt(29 * variance), 1e-9);
    optimizers::allreduce_parameters(context, model);
    EXPECT_EQ(difference(model.weight, at::full({2, 3, 2, 2}, mean), 1e-6), "");
    EXPECT_EQ(difference(model.frozen, at::full({5}, mean), 1e-6), "");
    EXPECT_EQ(model.statistics[0].item<int>(), context.rank());
    EXPECT_EQ(optimizers::consensus_distance(context, model), 0.0);
  });
}

TEST(ParameterCollectives, OtherShapesOrRootsAreErrors) {
  on_ranks({.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    struct Own : torch::nn::Module {
      explicit Own(std::int64_t size) { register_parameter("weight", at::zeros({size})); }
    } own(context.rank() == 0 ? 4 : 5);
    EXPECT_THROW(optimizers::broadcast_parameters(context, own, context.size()), InvalidArgument);
    // The sender of the refused message gets the error in this call or in its next one.
    std::string message;
    for (const auto& call :
         {std::function<void()>([&] { optimizers::broadcast_parameters(context, own, 0); }),
          std::function<void()>([&] { ops::barrier(context); })}) {
      try {
        call();
      } catch (const MismatchError& error) {
        message = error.what();
      }
    }
    EXPECT_THAT(message, ::testing::HasSubstr("weight"));
  });
}

TEST(ParameterCollectives, AnotherNumberOfParametersIsAnErrorOnAllRanks) {
  on_ranks(some_ranks(2), [](Context& context) {
    struct Own : torch::nn::Module {
      explicit Own(int count) {
        for (int i = 0; i < count; ++i) {
          register_parameter("p" + std::to_string(i), at::zeros({3}));
        }
      }
    } own(context.rank() == 0 ? 3 : 2);
    const auto expect_error = [&](const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "expected a MismatchError";
      } catch (const MismatchError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("p2"));
      }
    };
    expect_error([&] { optimizers::broadcast_parameters(context, own); });
    expect_error([&] { optimizers::allreduce_parameters(context, own); });
    double rank = context.rank();
    ops::broadcast(context, {.data = &rank, .count = 1, .dtype = Dtype::Float64}, 1);
    EXPECT_EQ(rank, 1.0);
  });
}

template <typename Optimizer, typename Options>
void expect_state_travels(Context& context, const Options& options) {
  const int root = context.size() - 1;
  const auto prepare = [&](const Point& point, Optimizer& optimizer, double rate) {
    optimizer.param_groups()[0].options().set_lr(rate);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      LeastSquares::of_rank(0).loss(point.x()).backward();
      optimizer.step();
    }
  };
  const Point reference(0);
  Optimizer expected(reference.parameters(), options);
  prepare(reference, expected, 0.07);
  const Point point(0);
  Optimizer optimizer(point.parameters(), options);
  if (context.rank() == root) {  // the others have no state yet
    prepare(point, optimizer, 0.07);
  }
  optimizers::broadcast_parameters(context, point, root);
  optimizers::broadcast_optimizer_state(context, optimizer, root);
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.07);
  prepare(point, optimizer, 0.05);
  prepare(reference, expected, 0.05);
  EXPECT_SAME(point.x(), reference.x());
}

TEST(ParameterCollectives, OptimizerStateTravels) {
  on_ranks(some_ranks(), [](Context& context) {
    namespace optim = torch::optim;
    expect_state_travels<optim::SGD>(context, optim::SGDOptions(0.1).momentum(0.9));
    expect_state_travels<optim::SGD>(context, optim::SGDOptions(0.1));
    expect_state_travels<optim::Adam>(context, optim::AdamOptions(0.1).amsgrad(true));
    expect_state_travels<optim::AdamW>(context, optim::AdamWOptions(0.1));
    expect_state_travels<optim::RMSprop>(context,
                                         optim::RMSpropOptions(0.1).momentum(0.5).centered(true));
    expect_state_travels<optim::Adagrad>(context, optim::AdagradOptions(0.1).lr_decay(0.01));
    optimizers::AccumAdamOptions accum(0.1);
    accum.accumulation = 2;  // so that the root's moments have changed
    expect_state_travels<optimizers::AccumAdam>(context, accum);
    optimizers::AccumAdamWOptions accum_w(0.1);
    accum_w.accumulation = 2;
    expect_state_travels<optimizers::AccumAdamW>(context, accum_w);
  });
}

TEST(ParameterCollectives, OptimizerStateHasTheRootsDtypes) {
  on_ranks(some_ranks(2), [](Context& context) {
    namespace optim = torch::optim;
    const int root = context.size() - 1;
    for (const bool have_state : {false, true}) {
      Bag bag;
      const at::Tensor weight = bag.add("weight", filled({2, 3}, 0));
      optim::Adam adam(bag.parameters(), optim::AdamOptions(0.1));
      const bool is_root = context.rank() == root;
      if (is_root || have_state) {
        const at::ScalarType dtype = is_root ? at::kDouble : at::kBFloat16;
        auto state = std::make_unique<optim::AdamParamState>();
        state->step(5);
        state->exp_avg(at::full({2, 3}, 1.0 / 3, dtype));
        state->exp_avg_sq(at::full({2, 3}, 0.5, is_root ? at::kFloat : at::kDouble));
        adam.state()[weight.unsafeGetTensorImpl()] = std::move(state);
      }
      optimizers::broadcast_optimizer_state(context, adam, root);
      const auto& found =
          static_cast<optim::AdamParamState&>(*adam.state()[weight.unsafeGetTensorImpl()]);
      EXPECT_EQ(found.exp_avg().scalar_type(), at::kDouble);
      EXPECT_SAME(found.exp_avg(), at::full({2, 3}, 1.0 / 3, at::kDouble));
      EXPECT_EQ(found.exp_avg_sq().scalar_type(), at::kFloat);
      EXPECT_FALSE(found.max_exp_avg_sq().defined());
    }
  });
}

TEST(ParameterCollectives, UnknownOptimizersAreRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::LBFGS lbfgs(point.parameters());
    EXPECT_THROW(optimizers::broadcast_optimizer_state(context, lbfgs), UnsupportedError);
  });
}

}  // namespace
}  // namespace bluefog::testing
