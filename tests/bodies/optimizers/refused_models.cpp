// Models and parameters that a distributed optimizer does not take.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/compression.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "topology/lazy_mixing.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct SilentHook final : torch::autograd::PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable& /*parameter*/) override {}
};

TEST(RefusedModels, AnotherDtypeOrShapeIsAnErrorThatNamesTheParameter) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("layer_x", filled({3}, 5));
    const at::Tensor value = x.detach().clone();
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmName::AdaptThenCombine));
    for (const at::Tensor& other : {value.to(at::kDouble), filled({4}, 1)}) {
      x.set_data(other);
      try {
        optimizer.step();
        ADD_FAILURE() << "expected InvalidArgument";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("'layer_x': expected float32[3]"));
        EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(context.rank())));
      }
    }
    x.set_data(value);
    optimizer.step();
    EXPECT_EQ(difference(x, filled({3}, 5), 1e-6), "");
  });
}

TEST(RefusedModels, UnsupportedOnesAreRefusedByName) {
  on_ranks(some_ranks(), [](Context& context) {
    const at::Tensor sparse = at::eye(3).to_sparse();
    const at::Tensor complex = at::zeros({2}, at::kComplexFloat);
    for (const auto& [value, text] : std::vector<std::pair<at::Tensor, std::string>>{
             {sparse, "dense"}, {complex, "Complex"}, {at::zeros({1}).expand({3}), "its own"}}) {
      Bag bag;
      bag.add("good", filled({2}, 1));
      const at::Tensor bad = bag.add("bad_one", value);
      torch::optim::SGD sgd(bag.parameters(), 1.0);
      try {
        const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag);
        ADD_FAILURE() << "expected InvalidArgument";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("parameter 'bad_one'"));
        EXPECT_THAT(error.what(), HasSubstr(text));
        EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(context.rank())));
      }
    }
    // Integers cannot require gradients: they are frozen, and stay.
    Bag bag;
    bag.add("good", filled({2}, 1));
    const at::Tensor whole = bag.add("whole", at::ones({2}, at::kLong), false);
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag);
    optimizer.step();
    EXPECT_SAME(whole, at::ones({2}, at::kLong));
  });
}

TEST(RefusedModels, OptionsThatAreNoValuesOfTheirTypesAreNamed) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    bag.add("x", filled({2}, 1));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    const auto message = [&](const DistributedOptimizerOptions& options) -> std::string {
      try {
        const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
        return "no error";
      } catch (const InvalidArgument& error) {
        return error.what();
      }
    };
    EXPECT_THAT(message({.stepping = static_cast<optimizers::Stepping>(99)}),
                HasSubstr("expected a value of Stepping, found 99"));
    EXPECT_THAT(message({.buffers = static_cast<optimizers::BufferPolicy>(99)}),
                HasSubstr("expected a value of BufferPolicy, found 99"));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag);
    EXPECT_THROW(optimizer.set_averaging(static_cast<optimizers::Averaging>(99)), InvalidArgument);
    optimizer.step();
  });
}

TEST(RefusedModels, OneRankWithABadModelStopsAll) {
  on_ranks(some_ranks(2), [](Context& context) {
    Bag bag;
    bag.add("x", context.rank() == 1 ? at::eye(3).to_sparse() : at::eye(3));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    if (context.rank() == 1) {
      EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), sgd, bag), InvalidArgument);
    } else {
      try {
        const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag);
        ADD_FAILURE() << "expected PeerFailure";
      } catch (const PeerFailure& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_THAT(error.what(), HasSubstr("parameter 'x'"));
      }
    }
  });
}

TEST(RefusedModels, ModelsThatDifferBetweenRanksAreNamed) {
  on_ranks(some_ranks(2), [](Context& context) {
    const bool is_last = context.rank() == context.size() - 1;
    const auto expect_difference = [&](const Bag& bag, const DistributedOptimizerOptions& options,
                                       const std::string& text) {
      torch::optim::SGD sgd(bag.parameters(), 1.0);
      try {
        const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
        ADD_FAILURE() << "expected MismatchError";
      } catch (const MismatchError& error) {
        EXPECT_THAT(error.what(), HasSubstr(text));
      }
    };
    Bag shape;
    shape.add("first", filled({2}, 1));
    shape.add("second", filled({is_last ? 4 : 3}, 1));
    expect_difference(shape, {}, "'second', float32[3]");
    Bag order;
    order.add(is_last ? "second" : "first", filled({2}, 1));
    order.add(is_last ? "first" : "second", filled({2}, 1));
    expect_difference(order, {}, "'first'");
    Bag extra;
    extra.add("first", filled({2}, 1));
    if (is_last) {
      extra.add("extra", filled({2}, 1));
    }
    expect_difference(extra, {}, "has nothing");
    Bag same;
    same.add("first", filled({2}, 1));
    DistributedOptimizerOptions options;
    options.num_steps_per_communication = is_last ? 2 : 1;
    expect_difference(same, options, "num_steps_per_communication");
    options = {};
    const auto w = topology::ring(context.size());
    options.schedule = topology::static_schedule(is_last ? topology::lazy(w, 0.5) : w);
    expect_difference(same, options, "W(0) with rank 0: ");
    options.schedule = topology::static_schedule(w);
    if (is_last) {
      options.schedule = std::nullopt;
    }
    expect_difference(same, options, "has the default schedule");
    std::vector<MixingMatrix> turns(40, w);
    if (is_last) {
      turns[37] = topology::lazy(w, 0.5);
    }
    options.schedule = topology::cycle(turns);
    expect_difference(same, options, "W(37) of digest ");
  });
}

/// Values times a share: codes of one name and length, which differ.
class ShareCode final : public ops::Compression {
 public:
  explicit ShareCode(float share) : share_(share) {}

  [[nodiscard]] std::string name() const override { return "share"; }
  [[nodiscard]] std::size_t bytes_of(std::size_t count) const override {
    return count * sizeof(float);
  }
  [[nodiscard]] double contraction(std::size_t /*count*/) const override { return 0.5; }
  void encode(std::span<const float> values, std::span<std::byte> code) const override {
    if (share_ == 0.0F) {
      throw InvalidArgument("no share");
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float part = share_ * values[i];
      std::memcpy(code.subspan(i * sizeof part).data(), &part, sizeof part);
    }
  }
  void decode(std::span<const std::byte> code, std::span<float> values) const override {
    std::memcpy(values.data(), code.data(), values.size_bytes());
  }

 private:
  float share_;
};

TEST(RefusedModels, CodesOfOneNameThatDifferAreNamed) {
  on_ranks(some_ranks(2), [](Context& context) {
    const bool is_last = context.rank() == context.size() - 1;
    Bag bag;
    bag.add("x", filled({300}, 1));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    const auto wrap = [&](float share) {
      const DistributedOptimizer optimizer(
          context.shared_from_this(), sgd, bag,
          {.algorithm = AlgorithmName::Choco,
           .schedule = topology::static_schedule(topology::ring(context.size())),
           .compression = std::make_shared<ShareCode>(share)});
    };
    wrap(1.0F);
    try {
      wrap(is_last ? 0.875F : 1.0F);
      ADD_FAILURE() << "expected MismatchError";
    } catch (const MismatchError& error) {
      EXPECT_THAT(
          error.what(),
          AllOf(HasSubstr("rank 0 has compression share, 40000 bytes for 10000 values, of "
                          "digest "),
                HasSubstr(fmt::format("rank {} has compression share, 40000 bytes for 10000 "
                                      "values, of digest ",
                                      context.size() - 1))));
    }
    try {
      wrap(is_last ? 0.0F : 1.0F);
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(is_last);
      EXPECT_THAT(error.what(), HasSubstr("compression: no share"));
    } catch (const PeerFailure& error) {
      EXPECT_EQ(error.rank(), context.size() - 1);
      EXPECT_THAT(error.what(), HasSubstr("compression: no share"));
    }
  });
}

TEST(RefusedModels, WhatTheOptimizerHoldsMustBeTheModels) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    bag.add("x", filled({2}, 1));
    Bag stranger;
    const at::Tensor y = stranger.add("y", filled({3}, 1));
    torch::optim::SGD sgd(std::vector<at::Tensor>{bag.parameters()[0], y}, 1.0);
    EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), sgd, bag), InvalidArgument);
    torch::optim::SGD none(stranger.parameters(), 1.0);
    y.requires_grad_(false);
    EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), none, stranger), InvalidArgument);
    Bag overlapping;
    const at::Tensor all = filled({6}, 1);
    overlapping.add("head", all.slice(0, 0, 4));
    overlapping.add("tail", all.slice(0, 3, 6));
    torch::optim::SGD both(overlapping.parameters(), 1.0);
    EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), both, overlapping),
                 InvalidArgument);
  });
}

TEST(RefusedModels, TwoHoldersOfAModelAreRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmName kind :
         {AlgorithmName::GradientAllreduce, AlgorithmName::AdaptThenCombine, AlgorithmName::None}) {
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), 1.0);
      torch::optim::SGD other(std::vector<at::Tensor>{point.second}, 1.0);
      DistributedOptimizerOptions options;
      options.algorithm = kind;
      {
        const DistributedOptimizer first(context.shared_from_this(), sgd, point, options);
        try {
          const DistributedOptimizer second(context.shared_from_this(), other, point, options);
          ADD_FAILURE() << "expected InvalidArgument";
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("'second'"), HasSubstr("no other distributed optimizer")));
        }
      }
      DistributedOptimizer later(context.shared_from_this(), sgd, point, options);
      train(later, point, LeastSquares::of_rank(0));
    }
  });
}

TEST(RefusedModels, TwoOptimizersMayShareAModelWithoutSharingParameters) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::SGD slow(std::vector<at::Tensor>{point.first}, 0.1);
    torch::optim::SGD fast(std::vector<at::Tensor>{point.second, point.third}, 1.0);
    DistributedOptimizer one(context.shared_from_this(), slow, point, {});
    DistributedOptimizer other(context.shared_from_this(), fast, point, {});
    train(one, point, LeastSquares::of_rank(0));
    train(other, point, LeastSquares::of_rank(0));
  });
}

TEST(RefusedModels, AnotherHookOnAGradientIsRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), 1.0);
    if (context.rank() == 0) {
      torch::autograd::impl::set_post_acc_grad_hooks(point.second, std::make_unique<SilentHook>());
    }
    DistributedOptimizerOptions options;
    const auto wrap = [&] {
      DistributedOptimizer(context.shared_from_this(), sgd, point, options);
    };
    wrap();
    options.algorithm = AlgorithmName::GradientAllreduce;
    const std::string text =
        context.rank() == 0 ? error_of<InvalidArgument>(wrap) : error_of<PeerFailure>(wrap);
    EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("rank {}, Distributed", context.rank())),
                            HasSubstr("'second': expected its post-accumulate gradient hook")));
  });
}

TEST(RefusedModels, SparseGradientsAreRefusedByGradientAllreduceAlone) {
  on_ranks(some_ranks(), [](Context& context) {
    torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    optimizers::broadcast_parameters(context, *embedding);
    torch::optim::SGD sgd(embedding->parameters(), 1.0);
    const auto backward = [&] { embedding->forward(torch::tensor({1, 2})).sum().backward(); };
    {
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, *embedding,
                                     full_averaging(context, AlgorithmName::GradientAllreduce));
      try {
        backward();
        ADD_FAILURE() << "expected UnsupportedError";
      } catch (const UnsupportedError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr(fmt::format("rank {}, gradient all-reduce, parameter 'weight': "
                                          "expected a dense gradient",
                                          context.rank())));
      }
    }
    sgd.zero_grad();
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, *embedding,
                                   full_averaging(context, AlgorithmName::AdaptThenCombine));
    const at::Tensor before = embedding->weight.detach().clone();
    backward();
    optimizer.step();
    before.slice(0, 1, 3).sub_(1);
    EXPECT_EQ(difference(embedding->weight, before, 1e-6), "");
  });
}

}  // namespace
}  // namespace bluefog::testing
