// What users do to parameters, before and after wrapping them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bluefog_cpp/base/error.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmKind;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using optimizers::NamedTensors;
using ::testing::HasSubstr;

/// W = J in one step, whatever the number of ranks.
DistributedOptimizerOptions full_averaging(const Context& context, AlgorithmKind algorithm) {
  DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.schedule = topology::static_schedule(topology::fully_connected(context.size()));
  options.bucket_bytes = 64;
  return options;
}

/// A model that holds whatever parameters a test wants.
struct Bag : torch::nn::Module {
  at::Tensor add(const std::string& name, const at::Tensor& value, bool requires_grad = true) {
    return register_parameter(name, value, requires_grad);
  }
};

at::Tensor filled(at::IntArrayRef sizes, double value) {
  return at::full(sizes, value, at::kFloat);
}

/// Mean of 0 … n − 1.
double mean_rank(const Context& context) { return (context.size() - 1) / 2.0; }

TEST(Parameters, FrozenOnesStayAndUnusedOnesAreAveraged) {
  on_ranks(some_ranks(), [](Context& context) {
    const double r = context.rank();
    Bag bag;
    const at::Tensor used = bag.add("used", filled({2}, 0));
    const at::Tensor unused = bag.add("unused", filled({3}, r));
    const at::Tensor frozen = bag.add("frozen", filled({4}, r), false);
    torch::optim::SGD sgd(bag.parameters(), torch::optim::SGDOptions(1.0).weight_decay(0.5));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmKind::AdaptThenCombine));
    (used * (r + 1)).sum().backward();
    optimizer.step();
    const float tolerance = 1e-6F;  // 1/n is rounded
    EXPECT_EQ(difference(used, filled({2}, -mean_rank(context) - 1), tolerance), "");
    EXPECT_EQ(difference(unused, filled({3}, mean_rank(context)), tolerance), "");
    EXPECT_SAME(frozen, filled({4}, r));
    frozen.requires_grad_(true);
    EXPECT_THROW(optimizer.step(), StateError);
  });
}

/// A gradient on one rank only counts as zeros on the others; one that nobody has is no gradient:
/// weight decay and momentum leave that parameter alone, on every rank.
TEST(Parameters, GradientsThatSomeOrAllRanksLack) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    const at::Tensor everywhere = bag.add("everywhere", filled({2}, 0));
    const at::Tensor on_one = bag.add("on_one", filled({3}, 0));
    const at::Tensor nowhere = bag.add("nowhere", filled({5}, 1));
    torch::optim::SGD sgd(bag.parameters(), torch::optim::SGDOptions(1.0).weight_decay(0.5));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmKind::GradientAllreduce));
    for (int step = 0; step < 2; ++step) {
      {
        const torch::NoGradGuard no_grad;
        everywhere.zero_();
        on_one.zero_();
      }
      optimizer.zero_grad();
      at::Tensor loss = everywhere.sum();
      if (context.rank() == context.size() - 1) {
        loss = loss + (on_one * context.size()).sum();
      }
      loss.backward();
      optimizer.step();
      EXPECT_EQ(difference(everywhere, filled({2}, -1), 1e-6), "");
      EXPECT_EQ(difference(on_one, filled({3}, -1), 1e-6), "");
      EXPECT_SAME(nowhere, filled({5}, 1));
      EXPECT_FALSE(nowhere.grad().defined());
    }
  });
}

TEST(Parameters, ARankWithoutABackwardPassCountsAsZeros) {
  on_ranks(some_ranks(2), [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("x", filled({2}, 0));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmKind::GradientAllreduce));
    if (context.rank() != 0) {
      x.sum().backward();
    }
    optimizer.step();
    const double n = context.size();
    EXPECT_EQ(difference(x, filled({2}, -(n - 1) / n), 1e-6), "");
  });
}

TEST(Parameters, TiedWeightsTravelOnce) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    const at::Tensor shared = bag.add("encoder", filled({2}, context.rank()));
    bag.add("decoder", shared);
    EXPECT_EQ(optimizers::named_parameters(bag).size(), 1);
    torch::optim::SGD sgd(std::vector<at::Tensor>{shared}, 1.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmKind::AdaptThenCombine));
    EXPECT_EQ(optimizer.buckets().front().segments().size(), 1);
    optimizer.step();
    EXPECT_EQ(difference(shared, filled({2}, mean_rank(context)), 1e-6), "");
  });
}

TEST(Parameters, MemoryFormatIsKept) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    const at::Tensor value = random({2, 3, 4, 5}, 1 + static_cast<std::uint64_t>(context.rank()))
                                 .to(at::kFloat)
                                 .contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor weight = bag.add("weight", value.clone());
    const at::Tensor transposed = bag.add("transposed", random({3, 2}, 7).t());
    at::Tensor mean = at::zeros_like(value, at::kDouble);
    for (int rank = 0; rank < context.size(); ++rank) {
      mean += random({2, 3, 4, 5}, 1 + static_cast<std::uint64_t>(rank)) / context.size();
    }
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmKind::AdaptThenCombine));
    EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_SAME(weight, value);
    EXPECT_EQ(transposed.stride(0), 1);
    optimizer.step();
    EXPECT_EQ(difference(weight, mean, 1e-6), "");
    EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    // A change of format afterwards is undone, the value kept.
    const at::Tensor before = weight.detach().clone();
    weight.set_data(weight.detach().contiguous().clone());
    optimizer.step();
    EXPECT_EQ(difference(weight, before, 1e-6), "");
    EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(Parameters, SavingOneSavesItsOwnElements) {
  on_ranks({.at_most = 1}, [](Context& context) {
    Bag bag;
    const at::Tensor small = bag.add("small", filled({4}, 1));
    bag.add("large", filled({1 << 20}, 1));
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag);
    EXPECT_EQ(optimizer.buckets().size(), 1);
    EXPECT_EQ(small.storage().nbytes(), 16);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.const_data_ptr()) % 64, 0);
    std::ostringstream stream;
    torch::save(small.detach(), stream);
    EXPECT_LT(stream.str().size(), 4096);
  });
}

TEST(Parameters, ReplacedMemoryIsTakenBack) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmKind kind :
         {AlgorithmKind::AdaptThenCombine, AlgorithmKind::AdaptWithCombine}) {
      Bag bag;
      const at::Tensor x = bag.add("x", filled({3}, 5));
      const at::Tensor y = bag.add("y", filled({2}, 5));
      torch::optim::SGD sgd(bag.parameters(), 1.0);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                     full_averaging(context, kind));
      optimizer.step();
      // torch::load replaces the storage.
      Bag source;
      source.add("x", filled({3}, context.rank()));
      source.add("y", filled({2}, context.rank() * 2));
      std::stringstream stream;
      torch::serialize::OutputArchive out;
      source.save(out);
      out.save_to(stream);
      torch::serialize::InputArchive in;
      in.load_from(stream);
      bag.load(in);
      optimizer.step();
      optimizer.finish();
      EXPECT_EQ(difference(x, filled({3}, mean_rank(context)), 1e-6), "");
      EXPECT_EQ(difference(y, filled({2}, mean_rank(context) * 2), 1e-6), "");
      EXPECT_TRUE(optimizer.buckets().front().is_bound());
    }
  });
}

TEST(Parameters, AnotherDtypeOrShapeIsAnErrorThatNamesTheParameter) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("layer_x", filled({3}, 5));
    const at::Tensor value = x.detach().clone();
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmKind::AdaptThenCombine));
    for (const at::Tensor& other : {value.to(at::kDouble), filled({4}, 1)}) {
      x.set_data(other);
      try {
        optimizer.step();
        ADD_FAILURE() << "expected InvalidArgument";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("'layer_x': expected float32[3]"));
      }
    }
    x.set_data(value);
    optimizer.step();
    EXPECT_EQ(difference(x, filled({3}, 5), 1e-6), "");
  });
}

TEST(Parameters, UnsupportedOnesAreRefusedByName) {
  on_ranks(some_ranks(), [](Context& context) {
    const at::Tensor sparse = at::eye(3).to_sparse();
    const at::Tensor complex = at::zeros({2}, at::kComplexFloat);
    for (const auto& [value, text] :
         std::vector<std::pair<at::Tensor, std::string>>{{sparse, "dense"}, {complex, "Complex"}}) {
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

TEST(Parameters, OneRankWithABadModelStopsAll) {
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

TEST(Parameters, ModelsThatDifferBetweenRanksAreNamed) {
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
  });
}

TEST(Parameters, WhatTheOptimizerHoldsMustBeTheModels) {
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

TEST(Parameters, HalfPrecisionAndMixedDtypes) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    const double value = 1 << context.rank();
    double mean = 0;
    for (int rank = 0; rank < context.size(); ++rank) {
      mean += static_cast<double>(1 << rank) / context.size();
    }
    std::vector<at::Tensor> tensors;
    for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
      tensors.push_back(
          bag.add(std::string("p") + std::to_string(tensors.size()), at::full({5}, value, dtype)));
    }
    torch::optim::SGD sgd(bag.parameters(), 1.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmKind::AdaptThenCombine));
    EXPECT_EQ(optimizer.buckets().size(), 4);
    optimizer.step();
    for (const at::Tensor& tensor : tensors) {
      // One rounding to the parameter's own precision.
      EXPECT_EQ(difference(tensor, at::full({5}, mean, at::kDouble).to(tensor.dtype()), 1e-6), "");
    }
  });
}

TEST(Parameters, TwoHoldersOfTheGradientHooksAreRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), 1.0);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmKind::GradientAllreduce;
    {
      const DistributedOptimizer first(context.shared_from_this(), sgd, point, options);
      EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), sgd, point, options),
                   StateError);
    }
    DistributedOptimizer later(context.shared_from_this(), sgd, point, options);
    train(later, point, LeastSquares::of_rank(0));
  });
}

TEST(Parameters, SparseGradientsAreRefusedByGradientAllreduceAlone) {
  on_ranks(some_ranks(), [](Context& context) {
    torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    optimizers::broadcast_parameters(context, *embedding);
    torch::optim::SGD sgd(embedding->parameters(), 1.0);
    const auto backward = [&] { embedding->forward(torch::tensor({1, 2})).sum().backward(); };
    {
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, *embedding,
                                     full_averaging(context, AlgorithmKind::GradientAllreduce));
      try {
        backward();
        ADD_FAILURE() << "expected UnsupportedError";
      } catch (const UnsupportedError& error) {
        EXPECT_THAT(error.what(), HasSubstr("'weight'"));
      }
    }
    sgd.zero_grad();
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, *embedding,
                                   full_averaging(context, AlgorithmKind::AdaptThenCombine));
    const at::Tensor before = embedding->weight.detach().clone();
    backward();
    optimizer.step();
    before.slice(0, 1, 3).sub_(1);
    EXPECT_EQ(difference(embedding->weight, before, 1e-6), "");
  });
}

}  // namespace
}  // namespace bluefog::testing
