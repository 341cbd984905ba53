#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/checkpoint.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmKind;
using optimizers::checkpoint_file;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using optimizers::load_checkpoint;
using optimizers::save_checkpoint;
using ::testing::HasSubstr;

/// A new folder, the same on every rank; gone when all have done with it.
class Folder {
 public:
  explicit Folder(Context& context) : context_(context) {
    path_ = std::filesystem::temp_directory_path() / "bluefog_checkpoint_XXXXXX";
    // The name is one that no rank has used before: a rank that still removes an earlier folder
    // must not meet this one.
    if (context.rank() == 0 && ::mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error("mkdtemp failed for " + path_);
    }
    ops::broadcast(context,
                   {.data = path_.data(),
                    .count = static_cast<std::int64_t>(path_.size()),
                    .dtype = Dtype::UInt8},
                   0);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    try {
      ops::barrier(context_);
    } catch (const Error&) {
      // A rank has failed, and says so itself.
    }
    if (context_.rank() == 0) {
      std::error_code ignored;
      std::filesystem::remove_all(path_, ignored);
    }
  }
  [[nodiscard]] std::string prefix() const { return path_ + "/model"; }

 private:
  Context& context_;
  std::string path_;
};

struct Training {
  Training(Context& context, AlgorithmKind kind, std::uint64_t seed)
      : problem(LeastSquares::of_rank(context.rank())),
        point(seed),
        adam(point.parameters(), torch::optim::AdamOptions(0.05)),
        optimizer(context.shared_from_this(), adam, point, options_of(context, kind)) {}

  static DistributedOptimizerOptions options_of(const Context& context, AlgorithmKind kind) {
    DistributedOptimizerOptions options;
    options.algorithm = kind;
    if (kind == AlgorithmKind::PushSum) {
      options.schedule = topology::static_schedule(unbalanced_graph(context.size()));
    } else if (kind != AlgorithmKind::Extra && kind != AlgorithmKind::ExactDiffusion &&
               kind != AlgorithmKind::D2 &&
               kind != AlgorithmKind::Ceca) {  // their default is what they need
      options.schedule = topology::one_peer_exponential(context.size());
    }
    options.momentum = 0.5;  // as much as DecentLaM bears on that schedule
    options.bucket_bytes = 32;
    return options;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      train(optimizer, point, problem);
    }
  }

  LeastSquares problem;
  Point point;
  torch::optim::Adam adam;
  DistributedOptimizer optimizer;
};

TEST(Checkpoint, AResumedRunHasTheSameBits) {
  on_ranks({.at_least = 1, .at_most = 4, .layouts = {Layout::OneHost}}, [](Context& context) {
    for (const AlgorithmKind kind :
         {AlgorithmKind::GradientAllreduce, AlgorithmKind::AdaptThenCombine,
          AlgorithmKind::AdaptWithCombine, AlgorithmKind::None, AlgorithmKind::Extra,
          AlgorithmKind::ExactDiffusion, AlgorithmKind::D2, AlgorithmKind::GradientTracking,
          AlgorithmKind::PushSum, AlgorithmKind::GossipPga, AlgorithmKind::Ceca,
          AlgorithmKind::LocalSgd, AlgorithmKind::DecentLam, AlgorithmKind::QuasiGlobalMomentum}) {
      const Folder folder(context);
      Training first(context, kind, 0);
      first.steps(3);
      save_checkpoint(folder.prefix(), first.point, first.optimizer);
      first.steps(3);
      first.optimizer.finish();

      Training second(context, kind, 17);
      second.steps(kind == AlgorithmKind::AdaptWithCombine ? 1 : 2);
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
  Training run(context, AlgorithmKind::AdaptThenCombine, 17);
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

/// Renames the sources of classes in the table of contents of `file`, which is at its end.
void rename_classes(const std::string& file) {
  constexpr std::string_view kClass = "__torch__/___torch_mangle_";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  std::size_t place = bytes.find(kClass, bytes.find("PK\1\2"));
  ASSERT_NE(place, std::string::npos);
  stream.clear();
  for (; place != std::string::npos; place = bytes.find(kClass, place + 1)) {
    stream.seekp(static_cast<std::streamoff>(place + kClass.size()));
    stream.put('x');
  }
}

TEST(Checkpoint, BadFilesAreNamedAndChangeNothing) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmKind::AdaptThenCombine, 0);
    const at::Tensor before = run.point.x().detach().clone();
    const std::string own = checkpoint_file(folder.prefix(), context.rank());
    const auto expect_refusal = [&](const std::string& text) {
      try {
        load_checkpoint(folder.prefix(), run.point, run.optimizer);
        ADD_FAILURE() << "expected an error";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr(text));
        EXPECT_THAT(error.what(), HasSubstr("model.rank"));
      } catch (const PeerFailure& error) {
        EXPECT_THAT(error.what(), HasSubstr(text));
      }
      EXPECT_SAME(run.point.x(), before);
      ops::barrier(context);
    };
    expect_refusal("expected it to exist");
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    ops::barrier(context);
    const bool is_last = context.rank() == context.size() - 1;
    if (is_last) {
      std::filesystem::resize_file(own, std::filesystem::file_size(own) / 2);
    }
    ops::barrier(context);
    expect_refusal("expected a whole checkpoint of this library, found an archive that is cut off");
    // torch has an exception of its own for a class that the archive lacks, which is no c10::Error.
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    if (is_last) {
      rename_classes(own);
    }
    ops::barrier(context);
    expect_refusal("expected a whole checkpoint of this library, found an archive that is cut off");
    EXPECT_THROW(save_checkpoint("/nonexistent_folder/model", run.point, run.optimizer),
                 InvalidArgument);
    // Files of different moments are refused.
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    run.steps(1);
    const at::Tensor later = run.point.x().detach().clone();
    save_checkpoint(folder.prefix() + "_later", run.point, run.optimizer);
    if (is_last) {
      std::filesystem::rename(checkpoint_file(folder.prefix() + "_later", context.rank()), own);
    }
    ops::barrier(context);
    if (context.size() > 1) {
      try {
        load_checkpoint(folder.prefix(), run.point, run.optimizer);
        ADD_FAILURE() << "expected an error";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("expected step 0"));
      }
      EXPECT_SAME(run.point.x(), later);
    }
  });
}

TEST(Checkpoint, ASaveThatIsCutOffCostsAtMostThatSave) {
  namespace fs = std::filesystem;
  on_ranks(some_ranks(2), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmKind::AdaptThenCombine, 0);
    const std::string own = checkpoint_file(folder.prefix(), context.rank());
    const bool is_last = context.rank() == context.size() - 1;
    run.steps(1);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    const at::Tensor first = run.point.x().detach().clone();
    fs::copy_file(own, own + ".first");
    run.steps(1);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    const at::Tensor second = run.point.x().detach().clone();
    const auto expect_loaded = [&](const at::Tensor& value, std::int64_t step) {
      ops::barrier(context);
      const auto loaded = load_checkpoint(folder.prefix(), run.point, run.optimizer);
      EXPECT_EQ(loaded.step_count, step);
      EXPECT_SAME(run.point.x(), value);
      ops::barrier(context);
    };
    // The last rank ended before its new file took the old one's place.
    if (is_last) {
      fs::rename(own, own + ".new");
      fs::copy_file(own + ".first", own);
    }
    expect_loaded(second, 2);
    // No rank's new file took its place, and the last rank's is not whole.
    if (is_last) {
      fs::resize_file(own + ".new", fs::file_size(own + ".new") / 2);
    } else {
      fs::rename(own, own + ".new");
      fs::copy_file(own + ".first", own);
    }
    expect_loaded(first, 1);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    EXPECT_FALSE(fs::exists(own + ".new"));
  });
}

TEST(Checkpoint, AFileThatCannotBeWrittenLeavesTheOldOnes) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmKind::AdaptThenCombine, 0);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    run.steps(1);
    const std::string blocked = checkpoint_file(folder.prefix(), context.rank()) + ".new";
    if (context.rank() == 0) {
      std::filesystem::create_directory(blocked);
      EXPECT_THROW(save_checkpoint(folder.prefix(), run.point, run.optimizer), InvalidArgument);
    } else {
      EXPECT_THROW(save_checkpoint(folder.prefix(), run.point, run.optimizer), PeerFailure);
    }
    ops::barrier(context);
    EXPECT_EQ(load_checkpoint(folder.prefix(), run.point, run.optimizer).step_count, 0);
    ops::barrier(context);
  });
}

TEST(Checkpoint, AnotherModelOrAlgorithmIsRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmKind::AdaptThenCombine, 0);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    ops::barrier(context);
    Training other(context, AlgorithmKind::None, 0);
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
    Training run(context, AlgorithmKind::ExactDiffusion, 0);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    ops::barrier(context);
    Point point(0);
    torch::optim::Adam adam(point.parameters(), torch::optim::AdamOptions(0.05));
    DistributedOptimizerOptions options =
        Training::options_of(context, AlgorithmKind::ExactDiffusion);
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
    options.algorithm = AlgorithmKind::GradientAllreduce;
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
