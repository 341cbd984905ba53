#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "tests/bodies/optimizers/checkpoint_support.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::checkpoint_file;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using optimizers::load_checkpoint;
using optimizers::save_checkpoint;
using ::testing::HasSubstr;

TEST(Checkpoint, AResumedRunHasTheSameBits) {
  on_ranks({.at_least = 1, .at_most = 4, .layouts = {Layout::OneHost}}, [](Context& context) {
    for (const auto make_row : optimizers::kBuiltInRows) {
      const optimizers::AlgorithmRow row = make_row();
      if (row.uses_windows) {
        continue;  // what neighbours have put is not saved
      }
      const AlgorithmName kind = row.name;
      const Folder folder(context);
      Training first(context, kind, 0);
      first.steps(3);
      save_checkpoint(folder.prefix(), first.point, first.optimizer);
      first.steps(3);
      first.optimizer.finish();

      Training second(context, kind, 17);
      second.steps(kind == AlgorithmName::AdaptWithCombine ? 1 : 2);
      const auto loaded = load_checkpoint(folder.prefix(), second.point, second.optimizer);
      EXPECT_EQ(loaded.saved_ranks, context.size());
      EXPECT_EQ(loaded.step_count, 3);
      EXPECT_TRUE(loaded.has_optimizer_state);
      second.steps(3);
      second.optimizer.finish();
      EXPECT_SAME(second.point.x(), first.point.x()) << name_of(kind);
      EXPECT_EQ(second.optimizer.step_count(), 6);
    }
  });
}

/// Writes the file that rank `rank` of `ranks` would have written, whose model is `Point(seed)`.
void write_part(const std::string& prefix, int rank, int ranks, std::uint64_t seed) {
  torch::serialize::OutputArchive archive;
  torch::serialize::OutputArchive model;
  const Point point(seed);
  c10::List<std::string> names;
  for (const auto& [name, tensor] : optimizers::named_parameters(point)) {
    model.write(std::to_string(names.size()), tensor.detach());
    names.push_back(name);
  }
  model.write("names", c10::IValue(names));
  archive.write("ranks", c10::IValue(std::int64_t{ranks}));
  archive.write("step_count", c10::IValue(std::int64_t{5}));
  archive.write("model", model);
  torch::serialize::OutputArchive nothing;
  archive.write("optimizer", nothing);
  archive.save_to(checkpoint_file(prefix, rank));
}

/// The model with which a run goes on from files of three ranks, whose models these seeds give.
/// Undefined on three ranks, which take their own files.
at::Tensor model_from_three(Context& context, const std::array<std::uint64_t, 3>& seeds) {
  const Folder folder(context);
  Training run(context, AlgorithmName::AdaptThenCombine, 17);
  for (int rank = 0; context.rank() == 0 && rank < 3; ++rank) {
    write_part(folder.prefix(), rank, 3, seeds[static_cast<std::size_t>(rank)]);
  }
  ops::barrier(context);
  if (context.size() == 3) {
    return {};
  }
  const auto loaded = load_checkpoint(folder.prefix(), run.point, run.optimizer);
  EXPECT_EQ(loaded.saved_ranks, 3);
  EXPECT_FALSE(loaded.has_optimizer_state);
  at::Tensor model = run.point.x().detach().clone();
  run.steps(2);
  return model;
}

/// Files of three ranks, read by any other number: the mean of their models.
TEST(Checkpoint, AnotherNumberOfRanksStartsFromTheMean) {
  on_ranks(some_ranks(), [](Context& context) {
    const at::Tensor model = model_from_three(context, {0, 1, 2});
    if (model.defined()) {
      const at::Tensor first = Point(0).x();
      EXPECT_SAME(model, first + ((Point(1).x() - first) + (Point(2).x() - first)) / 3);
    }
  });
}

TEST(Checkpoint, TheMeanOfEqualModelsIsThatModel) {
  on_ranks({.layouts = {Layout::OneHost}}, [](Context& context) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const at::Tensor model = model_from_three(context, {seed, seed, seed});
      if (model.defined()) {
        EXPECT_SAME(model, Point(seed).x());
      }
    }
  });
}

TEST(Checkpoint, AnotherModelOrAlgorithmIsRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmName::AdaptThenCombine, 0);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    ops::barrier(context);
    Training other(context, AlgorithmName::None, 0);
    EXPECT_THROW(load_checkpoint(folder.prefix(), other.point, other.optimizer), InvalidArgument);
    struct Wide : torch::nn::Module {
      Wide() { weight = register_parameter("first", at::zeros({3}, at::kDouble)); }
      at::Tensor weight;
    } wide;
    torch::optim::SGD sgd(wide.parameters(), 0.1);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, wide);
    EXPECT_THROW(load_checkpoint(folder.prefix(), wide, optimizer), InvalidArgument);
  });
}

/// The algorithm's state has the layout of the buckets.
TEST(Checkpoint, OtherBucketsAreNamed) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmName::ExactDiffusion, 0);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    ops::barrier(context);
    Point point(0);
    torch::optim::Adam adam(point.parameters(), torch::optim::AdamOptions(0.05));
    DistributedOptimizerOptions options =
        Training::options_of(context, AlgorithmName::ExactDiffusion);
    options.bucket_bytes = 1 << 20;
    DistributedOptimizer optimizer(context.shared_from_this(), adam, point, options);
    try {
      load_checkpoint(folder.prefix(), point, optimizer);
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("expected 'correction of bucket 0', float64["));
      EXPECT_THAT(error.what(), HasSubstr("bucket_bytes"));
    }
  });
}

TEST(Checkpoint, NotBetweenTheStepsOfASumOfGradients) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Point point(0);
    torch::optim::SGD sgd(point.parameters(), 0.1);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::GradientAllreduce;
    options.num_steps_per_communication = 2;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    const LeastSquares problem = LeastSquares::of_rank(0);
    train(optimizer, point, problem);
    EXPECT_THROW(save_checkpoint(folder.prefix(), point, optimizer), InvalidArgument);
    train(optimizer, point, problem);
    save_checkpoint(folder.prefix(), point, optimizer);
  });
}

}  // namespace
}  // namespace bluefog::testing
