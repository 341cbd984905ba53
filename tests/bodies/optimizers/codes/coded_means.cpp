// Means of codes with error feedback, by themselves and of gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/codes/coded_mean.hpp"
#include "tests/bodies/optimizers/codes/coded_runs.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::CodedMean;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kCodedRate = 0.01;

/// A vector of each rank, whose mean is taken by codes.
struct CodedVector {
  CodedVector(Context& context, const std::string& code, std::optional<double> decay,
              std::int64_t count)
      : v(at::zeros({count}, at::kDouble)),
        buckets(one_bucket(v)),
        mean(context, buckets[0], buckets[0].flat(), "v", ops::compression_named(code), decay, 0) {}

  void average() {
    CodedMean::Scratch scratch;
    mean.encode({}, scratch);
    mean.send().wait();
    mean.finish(scratch);
  }
  [[nodiscard]] at::Tensor left() const { return mean.left().narrow(0, 0, v.numel()).clone(); }

  at::Tensor v;
  std::vector<optimizers::Bucket> buckets;
  CodedMean mean;
};

at::Tensor vector_of(int rank, int round, std::int64_t count) {
  return random({count}, static_cast<std::uint64_t>(1000 * round + rank));
}

TEST(CodedMeans, SendAndKeepTheWhole) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const std::string code : {"topk:32", "sign", "int4", "int8", "bfloat16"}) {
      for (const double beta : {1.0, 0.9}) {
        constexpr std::int64_t kCount = 304;  // whole cache lines, without padding
        CodedVector coded(context, code, beta, kCount);
        std::vector<at::Tensor> left(static_cast<std::size_t>(context.size()),
                                     at::zeros({kCount}, at::kDouble));
        for (int round = 0; round < 5; ++round) {
          at::Tensor mean = at::zeros({kCount}, at::kDouble);
          for (int rank = 0; rank < context.size(); ++rank) {
            at::Tensor& e = left[static_cast<std::size_t>(rank)];
            const at::Tensor whole = beta * e + vector_of(rank, round, kCount);
            const at::Tensor sent = decoded_code(*ops::compression_named(code), whole);
            e = whole - sent;
            mean += sent / context.size();
          }
          coded.v.copy_(vector_of(context.rank(), round, kCount));
          coded.average();
          EXPECT_CLOSE(coded.v, mean) << code;
          EXPECT_CLOSE(coded.left(), left[static_cast<std::size_t>(context.rank())]) << code;
        }
      }
    }
  });
}

/// Equal values come back as they are, and nothing is left of them.
TEST(CodedMeans, OfValuesThatTheCodeHoldsAreTheValues) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{700}}) {
      for (const double value : {0.0, 1.0, 0.1, -3e38}) {
        CodedVector coded(context, "topk:4096", 1.0, count);
        coded.v.fill_(static_cast<double>(static_cast<float>(value)));
        const at::Tensor before = coded.v.clone();
        coded.average();
        EXPECT_SAME(coded.v, before);
        EXPECT_SAME(coded.left(), at::zeros_like(before));
      }
    }
  });
}

/// Values that are not finite are nobody's number, and leave no trace in what is sent later.
TEST(CodedMeans, OfWhatIsNotFiniteAreNotFinite) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const std::string code : {"topk:4096", "int8", "sign"}) {
      for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
        CodedVector coded(context, code, 1.0, 5);
        coded.v.copy_(vector_of(context.rank(), 0, 5));
        coded.average();
        const at::Tensor left = coded.left();
        coded.v.fill_(context.rank() == 0 ? bad : 1.0);
        coded.average();
        EXPECT_FALSE(coded.v.isfinite().any().item<bool>()) << code;
        EXPECT_SAME(coded.left(), left) << code;  // on ranks whose own values were finite, too
      }
    }
  });
}

/// Values beyond float32, and those that it rounds to zero, come later.
TEST(CodedMeans, OfValuesBeyondFloat32ComeInSeveralCodes) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const double value : {1e39, 1e-50, 1e-310}) {
      CodedVector coded(context, "bfloat16", 1.0, 3);
      double sum = 0.0;
      for (int round = 0; round < 40; ++round) {
        coded.v.fill_(round == 0 ? value : 0.0);
        coded.average();
        sum += coded.v[1].item<double>();
      }
      EXPECT_EQ(sum + coded.left()[1].item<double>(), value);
      EXPECT_LT(std::abs(sum - value), 1e-9 * value + 1e-45);
    }
  });
}

/// Whoever finds such gradients makes no step (GradScaler): what codes have left, of all parameters
/// and on all ranks, comes with the next one.
TEST(CodedMeans, OfGradientsThatAreNotFiniteElsewhereLeaveWhatIsLeft) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const std::string code : {"sign", "topk:64", ""}) {
      Bag bag;
      const at::Tensor good = bag.add("good", filled({6, 5}, 1.0));
      const at::Tensor bad = bag.add("bad", filled({6, 5}, 1.0));
      torch::optim::SGD sgd(bag.parameters(), 1.0);
      auto options = coded_options("gradient_allreduce", code);
      options.bucket_bytes = 32;
      if (code.empty()) {
        options.numbers["low_rank"] = 1.0;
      }
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
      const auto pass = [&](std::uint64_t seed, double factor_of_bad) {
        optimizer.zero_grad();
        const auto slopes = [&](std::uint64_t part) {
          return random({6, 5}, 100 * seed + 10 * part + static_cast<std::uint64_t>(context.rank()))
              .to(at::kFloat);
        };
        ((good * slopes(1)).sum() + (bad * slopes(2)).sum() * factor_of_bad).backward();
      };
      pass(1, 1.0);
      optimizer.step();
      std::vector<at::Tensor> before;
      for (const auto& [name, tensor] : optimizer.algorithm_state()) {
        before.push_back(tensor.clone());
        EXPECT_GT(tensor.abs().max().item<double>(), 0.0) << name;
      }
      pass(2, context.rank() == 0 ? std::nan("") : 1.0);
      EXPECT_FALSE(bad.grad().isfinite().all().item<bool>()) << code;
      const optimizers::NamedTensors after = optimizer.algorithm_state();
      for (std::size_t i = 0; i < before.size(); ++i) {
        const bool has_a_length = after[i].name.starts_with("factor");  // 1 when it is sent again
        EXPECT_EQ(
            difference(has_a_length ? after[i].tensor / after[i].tensor.norm() : after[i].tensor,
                       has_a_length ? before[i] / before[i].norm() : before[i],
                       has_a_length ? 1e-6 : 0.0),
            "")
            << code << ", " << after[i].name;
      }
      optimizer.zero_grad();
    }
  });
}

double distance_to_minimum(Context& context, const DistributedOptimizerOptions& options,
                           int steps) {
  const auto points = points_of_run(context, options, Start::Equal, steps, kCodedRate);
  return (points.back() - minimiser(context.size())).abs().max().item<double>();
}

/// One value of eight in each message: what is left has to come later.
TEST(CodedMeans, OfGradientsReachTheMinimumByErrorFeedbackAlone) {
  const Ranks ranks{
      .at_least = 4, .at_most = 4, .thread_counts = {4}, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    const double with =
        distance_to_minimum(context, coded_options("gradient_allreduce", "topk:1"), 1500);
    const double without = distance_to_minimum(
        context, coded_options("gradient_allreduce", "topk:1", {{"error_feedback", 0.0}}), 1500);
    EXPECT_LT(with, 0.1 * without);
    EXPECT_GT(without, 1e-2);
  });
}

TEST(CodedMeans, OfGradientsInACodeOfAllValuesAreTheMeans) {
  on_ranks(some_ranks(), [](Context& context) {
    DistributedOptimizerOptions coded = coded_options("gradient_allreduce", "topk:4096");
    DistributedOptimizerOptions plain = coded_options("gradient_allreduce", "");
    coded.bucket_bytes = plain.bucket_bytes = 32;
    const auto found = points_of_run(context, coded, Start::Equal, 8, kCodedRate);
    const auto expected = points_of_run(context, plain, Start::Equal, 8, kCodedRate);
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_EQ(difference(found[step], expected[step], 1e-6), "");
    }
  });
}

/// A parameter that one rank has a gradient for, and one that nobody has.
TEST(CodedMeans, OfGradientsCountMissingOnesAsZeros) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const char* const code : {"topk:4096", ""}) {
      Bag bag;
      const at::Tensor one = bag.add("one", filled({4, 4}, 1.0));
      const at::Tensor none = bag.add("none", filled({4, 4}, 1.0));
      torch::optim::SGD sgd(bag.parameters(), 1.0);
      auto options = coded_options("gradient_allreduce", code);
      if (options.compression == nullptr) {
        options.numbers["low_rank"] = 1.0;
      }
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
      optimizer.zero_grad();
      if (context.rank() == 0) {
        one.sum().backward();
      }
      optimizer.step();
      EXPECT_EQ(difference(one, filled({4, 4}, 1.0 - 1.0 / context.size()), 1e-6), "");
      EXPECT_SAME(none, filled({4, 4}, 1.0));
      EXPECT_FALSE(none.grad().defined());  // all ranks skip it
    }
  });
}

/// A rank that takes no part in a step: nobody steps, and the next one is whole.
TEST(CodedMeans, OfGradientsGoOnAfterARoundThatFails) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const bool is_low_rank : {false, true}) {
      Bag bag;
      const at::Tensor w = bag.add("w", filled({6, 5}, 0.0));
      torch::optim::SGD sgd(bag.parameters(), 1.0);
      auto options = coded_options("gradient_allreduce", is_low_rank ? "" : "topk:4096");
      if (is_low_rank) {
        options.numbers["low_rank"] = 1.0;
      }
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
      if (context.rank() == 0) {
        optimizer.refuse_step("as the test has it");
      } else {
        EXPECT_ANY_THROW({
          optimizer.zero_grad();
          (w.sum() * context.rank()).backward();
          optimizer.step();
        });
      }
      EXPECT_SAME(w, filled({6, 5}, 0.0));
      optimizer.zero_grad();
      (w.sum() * context.rank()).backward();
      optimizer.step();
      EXPECT_EQ(difference(w, filled({6, 5}, -mean_rank(context)), 1e-5), "");
    }
  });
}

/// What low rank has left is added to what is sent, and not to the gradients: a step that is made
/// again, without zero_grad, would count it twice.
TEST(CodedMeans, ARoundThatFailsLeavesTheGradients) {
  on_ranks(some_ranks(2), [](Context& context) {
    Bag bag;
    const at::Tensor w = bag.add("w", filled({6, 5}, 0.0));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   coded_options("gradient_allreduce", "", {{"low_rank", 1.0}}));
    const at::Tensor slopes =
        at::eye(6, at::kDouble).narrow(1, 0, 5).to(w.scalar_type()) * (1.0 + context.rank());
    const auto pass = [&] {
      optimizer.zero_grad();
      (w * slopes).sum().backward();
    };
    pass();
    optimizer.step();  // one of five directions is sent
    if (context.rank() == 0) {
      optimizer.refuse_step("as the test has it");
    } else {
      EXPECT_ANY_THROW({
        pass();
        optimizer.step();
      });
      EXPECT_SAME(w.grad(), slopes);
    }
  });
}

TEST(CodedMeans, OfGradientsAreRefusedWhereTheyCannotBe) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto error_with = [&](const DistributedOptimizerOptions& options,
                                at::ScalarType dtype = at::kFloat) {
      Bag bag;
      bag.add("x", at::ones({6, 5}, dtype));
      torch::optim::SGD sgd(bag.parameters(), 0.1);
      return error_of<Error>(
          [&] { DistributedOptimizer(context.shared_from_this(), sgd, bag, options); });
    };
    EXPECT_THAT(
        error_with(coded_options("gradient_allreduce", "int8", {{"low_rank", 2.0}})),
        HasSubstr("low_rank: expected a compression or a low rank, found both, int8 and 2"));
    EXPECT_THAT(error_with(coded_options("gradient_allreduce", "", {{"error_feedback", 0.0}})),
                HasSubstr("error_feedback: expected a compression or a low_rank"));
    EXPECT_THAT(error_with(coded_options("gradient_allreduce", "", {{"low_rank", 1.5}})),
                HasSubstr("low_rank: expected a whole number, found 1.5"));
    EXPECT_THAT(error_with(coded_options("gradient_allreduce", "", {{"low_rank", 1025.0}})),
                HasSubstr("low_rank: expected from 0 to below 1025"));
    EXPECT_THAT(error_with(coded_options("gradient_allreduce", "int8"), at::kBFloat16),
                HasSubstr("compression int8: expected parameters of float32 or float64"));
    EXPECT_THAT(
        error_with(coded_options("gradient_allreduce", "", {{"low_rank", 1.0}}), at::kBFloat16),
        HasSubstr("low_rank 1: expected parameters of float32 or float64"));
    EXPECT_THAT(error_with(coded_options("gradient_allreduce", "",
                                         {{"low_rank", context.rank() == 0 ? 1.0 : 2.0}})),
                HasSubstr("low_rank"));
  });
}

}  // namespace
}  // namespace bluefog::testing
