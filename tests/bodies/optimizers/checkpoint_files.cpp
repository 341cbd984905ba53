// Files of checkpoints that are cut off, damaged, of another kind, or that cannot be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/bodies/optimizers/checkpoint_support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::checkpoint_file;
using optimizers::DistributedOptimizer;
using optimizers::load_checkpoint;
using optimizers::save_checkpoint;
using ::testing::HasSubstr;

/// Renames the sources of classes in the table of contents of `file`, and cuts off the checksum.
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
  stream.close();
  std::filesystem::resize_file(file, bytes.rfind("\nbluefog_cpp crc32"));
}

TEST(Checkpoint, BadFilesAreNamedAndChangeNothing) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmName::AdaptThenCombine, 0);
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
    // An archive of torch that is none of this library's lacks what is looked for.
    if (is_last) {
      torch::serialize::OutputArchive other;
      other.write("x", run.point.x().detach());
      other.save_to(own);
    }
    ops::barrier(context);
    expect_refusal("expected a whole checkpoint of this library, found");
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
    Training run(context, AlgorithmName::AdaptThenCombine, 0);
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
    Training run(context, AlgorithmName::AdaptThenCombine, 0);
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

/// Exchanges one bit of `file`.
void flip_bit(const std::string& file, std::uintmax_t bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto place = static_cast<std::streamoff>(bit / 8);
  stream.seekg(place);
  const int byte = stream.get();
  stream.seekp(place);
  stream.put(static_cast<char>(byte ^ (1 << (bit % 8))));
}

/// Forty bits from the first to the last one, those of the checksum's line among them.
TEST(Checkpoint, AChangedBitIsFoundWhereverItIs) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmName::ExactDiffusion, 0);
    run.steps(2);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    ops::barrier(context);
    const at::Tensor before = run.point.x().detach().clone();
    const int broken = context.size() - 1;
    const std::string file = checkpoint_file(folder.prefix(), broken);
    const std::uintmax_t bits = 8 * std::filesystem::file_size(file);
    ops::barrier(context);
    constexpr std::uintmax_t kPlaces = 40;
    for (std::uintmax_t i = 0; i < kPlaces; ++i) {
      const std::uintmax_t bit = i * (bits - 1) / (kPlaces - 1);
      if (context.rank() == broken) {
        flip_bit(file, bit);
      }
      ops::barrier(context);
      const std::string error =
          error_of<Error>([&] { load_checkpoint(folder.prefix(), run.point, run.optimizer); });
      EXPECT_THAT(error, HasSubstr("checkpoint file '" + file + "': expected a whole"))
          << "bit " << bit << " of " << bits;
      EXPECT_SAME(run.point.x(), before);
      ops::barrier(context);
      if (context.rank() == broken) {
        flip_bit(file, bit);
      }
      ops::barrier(context);
    }
    EXPECT_EQ(load_checkpoint(folder.prefix(), run.point, run.optimizer).step_count, 2);
  });
}

/// An archive as versions before the checksum wrote it.
TEST(Checkpoint, AFileWithoutAChecksumIsRead) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmName::ExactDiffusion, 0);
    run.steps(2);
    const std::string own = checkpoint_file(folder.prefix(), context.rank());
    torch::serialize::OutputArchive state;
    run.optimizer.save(state);
    torch::serialize::OutputArchive model;
    c10::List<std::string> names;
    for (const auto& [name, tensor] : optimizers::named_parameters(run.point)) {
      model.write(std::to_string(names.size()), tensor.detach());
      names.push_back(name);
    }
    model.write("names", c10::IValue(names));
    torch::serialize::OutputArchive archive;
    archive.write("ranks", c10::IValue(std::int64_t{context.size()}));
    archive.write("step_count", c10::IValue(run.optimizer.step_count()));
    archive.write("model", model);
    archive.write("optimizer", state);
    archive.save_to(own);
    const at::Tensor saved = run.point.x().detach().clone();
    run.steps(1);
    ops::barrier(context);
    EXPECT_TRUE(load_checkpoint(folder.prefix(), run.point, run.optimizer).has_optimizer_state);
    EXPECT_SAME(run.point.x(), saved);
  });
}

TEST(Checkpoint, AFullDiskIsNamedAndLeavesTheOldFiles) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmName::AdaptThenCombine, 0);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    run.steps(1);
    const bool is_full = context.rank() == context.size() - 1;
    if (is_full) {
      std::filesystem::create_symlink("/dev/full",
                                      checkpoint_file(folder.prefix(), context.rank()) + ".new");
    }
    try {
      save_checkpoint(folder.prefix(), run.point, run.optimizer);
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(is_full);
      EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
      EXPECT_THAT(error.what(), HasSubstr("checkpoint file '" + folder.prefix()));
    } catch (const PeerFailure&) {
      EXPECT_FALSE(is_full);
    }
    ops::barrier(context);
    EXPECT_EQ(load_checkpoint(folder.prefix(), run.point, run.optimizer).step_count, 0);
  });
}

TEST(Checkpoint, AnotherWrappedOptimizerIsNamedAndChangesNothing) {
  on_ranks(some_ranks(), [](Context& context) {
    const Folder folder(context);
    Training run(context, AlgorithmName::AdaptThenCombine, 0);
    run.steps(1);
    save_checkpoint(folder.prefix(), run.point, run.optimizer);
    ops::barrier(context);
    Point point(17);
    torch::optim::SGD sgd(point.parameters(), torch::optim::SGDOptions(0.05).momentum(0.5));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   Training::options_of(context, AlgorithmName::AdaptThenCombine));
    const at::Tensor before = point.x().detach().clone();
    const std::string error =
        error_of<InvalidArgument>([&] { load_checkpoint(folder.prefix(), point, optimizer); });
    EXPECT_THAT(error, HasSubstr(checkpoint_file(folder.prefix(), context.rank()) + "': rank"));
    EXPECT_THAT(error, HasSubstr("expected the saved state of a torch::optim::SGD, found that of a "
                                 "torch::optim::Adam"));
    EXPECT_SAME(point.x(), before);
    EXPECT_EQ(optimizer.step_count(), 0);
    ops::barrier(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
