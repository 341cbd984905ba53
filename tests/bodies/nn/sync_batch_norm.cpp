#include "nn/sync_batch_norm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "nn/batch_statistics.hpp"
#include "ops/collectives.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

constexpr std::int64_t kChannels = 5;

Ranks up_to_four(int at_least = 1) {
  return {.at_least = at_least, .at_most = 4, .layouts = {Layout::OneHost}};
}

/// Float64 values around 3 that depend on the seed alone.
at::Tensor values(at::IntArrayRef sizes, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution(3.0, 2.0);
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = distribution(engine);
  }
  return tensor;
}

/// How rows lie in memory.
enum class Order { Contiguous, ChannelsLast, Transposed };

at::Tensor ordered(const at::Tensor& tensor, Order order) {
  switch (order) {
    case Order::ChannelsLast:
      return tensor.contiguous(at::MemoryFormat::ChannelsLast);
    case Order::Transposed:
      return tensor.transpose(-1, -2).contiguous().transpose(-1, -2);
    default:
      return tensor.contiguous();
  }
}

/// Rows of rank r: r + 2, but none on rank 2.
std::int64_t rows_of(int rank) { return rank == 2 ? 0 : rank + 2; }

std::int64_t rows_before(int rank) {
  std::int64_t sum = 0;
  for (int r = 0; r < rank; ++r) {
    sum += rows_of(r);
  }
  return sum;
}

at::Tensor rows_of(const at::Tensor& all, int rank) {
  return all.narrow(0, rows_before(rank), rows_of(rank));
}

nn::SyncBatchNorm layer_on(Context& context, torch::nn::BatchNormOptions options =
                                                 torch::nn::BatchNormOptions(kChannels)) {
  return nn::SyncBatchNorm(context.shared_from_this(), options);
}

/// The oracle: torch's own layer in float64 on everybody's rows.
torch::nn::BatchNorm2d oracle(
    torch::nn::BatchNormOptions options = torch::nn::BatchNormOptions(kChannels)) {
  torch::nn::BatchNorm2d layer(options);
  layer->to(at::kDouble);
  return layer;
}

void set_affine(torch::nn::Module& layer) {
  const torch::NoGradGuard no_grad;
  auto parameters = layer.named_parameters();
  parameters["weight"].copy_(values({kChannels}, 10).to(at::kHalf));
  parameters["bias"].copy_(values({kChannels}, 11).to(at::kHalf));
}

double distance(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_EQ(found.sizes(), expected.sizes());
  return found.numel() == 0
             ? 0.0
             : (found.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
}

at::Tensor summed(Context& context, const at::Tensor& tensor) {
  at::Tensor sum = tensor.detach().to(at::kDouble).contiguous().clone();
  ops::AllreduceOptions options;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(context, {.data = sum.data_ptr(), .count = sum.numel(), .dtype = Dtype::Float64},
                 options);
  return sum;
}

/// Outputs reach 20 and gradients 10: a rounding of the dtype is up to 2^-8, 2^-11 … of that, and
/// sums of 40 rounded inputs of float32 some more.
struct Case {
  at::ScalarType dtype;
  double tolerance;
};
const std::vector<Case> kCases{{at::kDouble, 1e-12},
                               {at::kFloat, 2e-5},
                               {at::kHalf, 20.0 / 2048},
                               {at::kBFloat16, 20.0 / 256}};

void expect_as_one_batch(Context& context, const Case& wanted, at::IntArrayRef row, Order order) {
  std::vector<std::int64_t> shape{rows_before(context.size())};
  shape.insert(shape.end(), row.begin(), row.end());
  // Rounded first: all sides see the same numbers.
  const at::Tensor all = values(shape, 1).to(wanted.dtype).to(at::kDouble).requires_grad_();
  const at::Tensor all_dy = (values(shape, 2) - 3).to(wanted.dtype).to(at::kDouble);
  auto reference = torch::nn::BatchNorm2d(torch::nn::BatchNormOptions(kChannels));
  reference->to(at::kDouble);
  set_affine(*reference);
  const at::Tensor expected =
      torch::batch_norm(all, reference->weight, reference->bias, reference->running_mean,
                        reference->running_var, true, 0.1, 1e-5, false);
  expected.backward(all_dy);

  auto layer = layer_on(context);
  layer->to(wanted.dtype);
  set_affine(*layer);
  const auto mine = [&](const at::Tensor& tensor) {
    return ordered(rows_of(tensor.detach(), context.rank()).to(wanted.dtype), order);
  };
  const at::Tensor input = mine(all).requires_grad_();
  const at::Tensor output = layer->forward(input);
  EXPECT_EQ(output.scalar_type(), wanted.dtype);
  EXPECT_LE(distance(output, rows_of(expected.detach(), context.rank())), wanted.tolerance);
  output.backward(mine(all_dy));
  EXPECT_LE(distance(input.grad(), rows_of(all.grad(), context.rank())), wanted.tolerance);
  // Sums over 40 and more elements.
  EXPECT_LE(distance(summed(context, layer->weight.grad()), reference->weight.grad()),
            10 * wanted.tolerance);
  EXPECT_LE(distance(summed(context, layer->bias.grad()), reference->bias.grad()),
            10 * wanted.tolerance);
  EXPECT_LE(distance(layer->running_mean, reference->running_mean), wanted.tolerance);
  EXPECT_LE(distance(layer->running_var, reference->running_var), wanted.tolerance);
  EXPECT_EQ(layer->num_batches_tracked.item<int>(), 1);
}

TEST(SyncBatchNorm, UnevenBatchesAreAsOneInEveryDtypeAndMemoryOrder) {
  on_ranks(up_to_four(), [](Context& context) {
    for (const Case& wanted : kCases) {
      expect_as_one_batch(context, wanted, {kChannels}, Order::Contiguous);
      expect_as_one_batch(context, wanted, {kChannels, 7}, Order::Contiguous);
      expect_as_one_batch(context, wanted, {kChannels, 3, 4}, Order::Contiguous);
      expect_as_one_batch(context, wanted, {kChannels, 3, 4}, Order::ChannelsLast);
      expect_as_one_batch(context, wanted, {kChannels, 3, 4}, Order::Transposed);
      expect_as_one_batch(context, wanted, {kChannels, 1, 1}, Order::ChannelsLast);
    }
  });
}

TEST(SyncBatchNorm, StatisticsAreTheSameBitsOnAllRanks) {
  on_ranks(up_to_four(2), [](Context& context) {
    const at::Tensor input =
        values({rows_of(context.rank()), kChannels, 9}, 20 + context.rank()).to(at::kFloat);
    const nn::BatchStatistics mine = nn::batch_statistics(context, input);
    at::Tensor first = at::cat({mine.mean, mine.variance}).clone();
    ops::broadcast(context,
                   {.data = first.data_ptr(), .count = first.numel(), .dtype = Dtype::Float32}, 0);
    EXPECT_TRUE(first.equal(at::cat({mine.mean, mine.variance})));
    EXPECT_EQ(mine.count, rows_before(context.size()) * 9);
  });
}

TEST(SyncBatchNorm, VarianceSurvivesAMeanThatIsLarge) {
  on_ranks(up_to_four(), [](Context& context) {
    // ±1 around 4096 + rank: squares would leave float32 nothing of it.
    const at::Tensor input = at::full({64, 2}, 4096.0F + static_cast<float>(context.rank()));
    input.slice(0, 0, 64, 2).add_(1);
    input.slice(0, 1, 64, 2).sub_(1);
    const nn::BatchStatistics found = nn::batch_statistics(context, input);
    const double n = context.size();
    EXPECT_EQ(found.mean[0].item<double>(), 4096 + (n - 1) / 2);
    EXPECT_NEAR(found.variance[1].item<double>(), 1 + (n * n - 1) / 12, 1e-6);
  });
}

TEST(SyncBatchNorm, RunningStatisticsFollowMomentumOrCount) {
  on_ranks(up_to_four(), [](Context& context) {
    for (const c10::optional<double> momentum :
         {c10::optional<double>(0.25), c10::optional<double>()}) {
      auto options = torch::nn::BatchNormOptions(kChannels).momentum(momentum);
      auto reference = oracle(options);
      auto layer = layer_on(context, options);
      layer->to(at::kDouble);
      for (std::uint64_t step = 0; step < 3; ++step) {
        const at::Tensor all = values({rows_before(context.size()), kChannels, 2, 2}, 30 + step);
        reference->forward(all);
        static_cast<void>(layer->forward(rows_of(all, context.rank())));
      }
      EXPECT_LE(distance(layer->running_mean, reference->running_mean), 1e-12);
      EXPECT_LE(distance(layer->running_var, reference->running_var), 1e-12);
      EXPECT_EQ(layer->num_batches_tracked.item<int>(), 3);
    }
  });
}

TEST(SyncBatchNorm, EvaluationIsLocalWhereStatisticsRun) {
  on_ranks(up_to_four(), [](Context& context) {
    auto layer = layer_on(context);
    set_affine(*layer);
    static_cast<void>(layer->forward(values({4, kChannels}, 40).to(at::kFloat)));
    const at::Tensor mean = layer->running_mean.clone();
    layer->eval();
    if (context.rank() == 0) {  // alone: a collective call would wait for the others
      const at::Tensor x = values({1, kChannels}, 41).to(at::kFloat);
      const at::Tensor expected =
          torch::batch_norm(x, layer->weight, layer->bias, layer->running_mean, layer->running_var,
                            false, 0.1, 1e-5, false);
      EXPECT_TRUE(layer->forward(x).equal(expected));
    }
    EXPECT_TRUE(layer->running_mean.equal(mean));
    ops::barrier(context);
  });
}

TEST(SyncBatchNorm, WithoutRunningStatisticsAndWithoutParameters) {
  on_ranks(up_to_four(), [](Context& context) {
    auto layer = layer_on(
        context, torch::nn::BatchNormOptions(kChannels).affine(false).track_running_stats(false));
    EXPECT_TRUE(layer->parameters().empty());
    layer->eval();
    const at::Tensor all = values({rows_before(context.size()), kChannels, 2}, 50).requires_grad_();
    const at::Tensor expected = torch::batch_norm(all, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    const at::Tensor dy = values(all.sizes(), 51);
    expected.backward(dy);
    const at::Tensor input = rows_of(all.detach(), context.rank()).clone().requires_grad_();
    const at::Tensor output = layer->forward(input);
    EXPECT_LE(distance(output, rows_of(expected.detach(), context.rank())), 1e-12);
    output.backward(rows_of(dy, context.rank()));
    EXPECT_LE(distance(input.grad(), rows_of(all.grad(), context.rank())), 1e-12);
  });
}

TEST(SyncBatchNorm, AnInputWithoutGradientNeedsNobody) {
  on_ranks(up_to_four(2), [](Context& context) {
    auto layer = layer_on(context);
    const at::Tensor output = layer->forward(values({3, kChannels}, 60).to(at::kFloat));
    if (context.rank() == 0) {  // alone: gradients of parameters are of this rank's batch
      output.sum().backward();
      EXPECT_LE(distance(layer->bias.grad(), at::full({kChannels}, 3.0)), 0.0);
    }
    ops::barrier(context);
  });
}

TEST(SyncBatchNorm, AWrongInputOfOneRankIsHeardOfByAll) {
  on_ranks(up_to_four(2), [](Context& context) {
    const at::Tensor right = values({3, kChannels}, 70).to(at::kFloat);
    for (const at::Tensor& wrong :
         {values({3, kChannels + 1}, 70).to(at::kFloat), right.flatten(), right.to(at::kInt)}) {
      auto layer = layer_on(context);
      if (context.rank() == 0) {
        EXPECT_THAT(error_of<InvalidArgument>([&] { static_cast<void>(layer->forward(wrong)); }),
                    ::testing::HasSubstr("expected"));
      } else {
        EXPECT_THAT(error_of<PeerFailure>([&] { static_cast<void>(layer->forward(right)); }),
                    ::testing::HasSubstr("expected"));
      }
      ops::barrier(context);
    }
  });
}

TEST(SyncBatchNorm, OtherNumbersOfChannelsAreAMismatchOnAllRanks) {
  on_ranks(up_to_four(2), [](Context& context) {
    const std::int64_t channels = context.rank() == 1 ? 3 : kChannels;
    const std::string said = error_of<MismatchError>([&] {
      static_cast<void>(nn::batch_statistics(context, at::ones({4, channels})));
    });
    EXPECT_THAT(said, ::testing::HasSubstr("rank 0 has 5, rank 1 has 3"));
    ops::barrier(context);
  });
}

TEST(SyncBatchNorm, OneElementInAllIsTooFew) {
  on_ranks(up_to_four(), [](Context& context) {
    const std::int64_t rows = context.rank() == 0 ? 1 : 0;
    auto layer = layer_on(context);
    const std::string said = error_of<InvalidArgument>([&] {
      static_cast<void>(layer->forward(at::ones({rows, kChannels})));
    });
    EXPECT_THAT(said, ::testing::HasSubstr("at least 2 elements per channel"));
    ops::barrier(context);
  });
}

TEST(SyncBatchNorm, SecondDerivativesAreRefused) {
  on_ranks(up_to_four(), [](Context& context) {
    auto layer = layer_on(context);
    const at::Tensor input = values({3, kChannels}, 80).to(at::kFloat).requires_grad_();
    const at::Tensor loss = layer->forward(input).square().sum();
    EXPECT_THROW(torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true),
                 UnsupportedError);
    EXPECT_THROW(nn::SyncBatchNorm(nullptr, torch::nn::BatchNormOptions(3)), InvalidArgument);
    ops::barrier(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
