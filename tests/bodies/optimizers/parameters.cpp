// Changes that users make to parameters, before and after wrapping them.
#include <gtest/gtest.h>

#include <sstream>

#include "bluefog_cpp/error.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;

TEST(Parameters, FrozenOnesStayAndUnusedOnesAreAveraged) {
  on_ranks(some_ranks(), [](Context& context) {
    const double r = context.rank();
    Bag bag;
    const at::Tensor used = bag.add("used", filled({2}, 0));
    const at::Tensor unused = bag.add("unused", filled({3}, r));
    const at::Tensor frozen = bag.add("frozen", filled({4}, r), false);
    torch::optim::SGD sgd(bag.parameters(), torch::optim::SGDOptions(1.0).weight_decay(0.5));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmName::AdaptThenCombine));
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

/// A gradient on one rank only counts as zeros on the others; a gradient that no rank has is none:
/// weight decay and momentum leave that parameter alone, on every rank.
TEST(Parameters, GradientsThatSomeOrAllRanksLack) {
  on_ranks(some_ranks(), [](Context& context) {
    Bag bag;
    const at::Tensor everywhere = bag.add("everywhere", filled({2}, 0));
    const at::Tensor on_one = bag.add("on_one", filled({3}, 0));
    const at::Tensor nowhere = bag.add("nowhere", filled({5}, 1));
    torch::optim::SGD sgd(bag.parameters(), torch::optim::SGDOptions(1.0).weight_decay(0.5));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   full_averaging(context, AlgorithmName::GradientAllreduce));
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
                                   full_averaging(context, AlgorithmName::GradientAllreduce));
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
                                   full_averaging(context, AlgorithmName::AdaptThenCombine));
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
                                   full_averaging(context, AlgorithmName::AdaptThenCombine));
    EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_SAME(weight, value);
    EXPECT_EQ(transposed.stride(0), 1);
    optimizer.step();
    EXPECT_EQ(difference(weight, mean, 1e-6), "");
    EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    // A later change of format is undone, and the value kept.
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
    for (const AlgorithmName kind :
         {AlgorithmName::AdaptThenCombine, AlgorithmName::AdaptWithCombine}) {
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
                                   full_averaging(context, AlgorithmName::AdaptThenCombine));
    EXPECT_EQ(optimizer.buckets().size(), 4);
    optimizer.step();
    for (const at::Tensor& tensor : tensors) {
      // The difference is one rounding to the parameter's own precision.
      EXPECT_EQ(difference(tensor, at::full({5}, mean, at::kDouble).to(tensor.dtype()), 1e-6), "");
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
