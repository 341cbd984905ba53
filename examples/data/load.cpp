#include "examples/data/load.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "examples/data/cifar.hpp"
#include "examples/data/idx.hpp"

namespace bluefog::examples {
namespace {

namespace fs = std::filesystem;

/// The first of the spellings of an IDX file that exists; the plain name if none does.
fs::path idx_path(const fs::path& folder, std::string_view part, std::string_view kind) {
  for (const char separator : {'-', '.'}) {
    for (const char* suffix : {"", ".gz"}) {
      fs::path path = folder / fmt::format("{}{}{}-ubyte{}", part, separator, kind, suffix);
      if (fs::exists(path)) {
        return path;
      }
    }
  }
  return folder / fmt::format("{}-{}-ubyte", part, kind);
}

/// Both sets share their file names; only the folder tells them apart.
std::string idx_name(const fs::path& folder) {
  return folder.string().find("fashion") != std::string::npos ? "Fashion-MNIST" : "MNIST";
}

/// @throws InvalidArgument naming the first of `files` that does not exist.
void require_all(std::string_view set, const std::vector<fs::path>& files) {
  for (const fs::path& file : files) {
    if (!fs::exists(file)) {
      std::vector<std::string> names;
      for (const fs::path& one : files) {
        names.push_back(one.filename().string());
      }
      throw InvalidArgument(fmt::format(
          "data folder {}: expected the files of {}: {}; {} does not exist",
          file.parent_path().string(), set, fmt::join(names, ", "), file.filename().string()));
    }
  }
}

std::optional<TrainTest> try_idx(const fs::path& folder) {
  const fs::path train_images = idx_path(folder, "train-images", "idx3");
  if (!fs::exists(train_images)) {
    return std::nullopt;
  }
  const std::string name = idx_name(folder);
  const fs::path train_labels = idx_path(folder, "train-labels", "idx1");
  const fs::path test_images = idx_path(folder, "t10k-images", "idx3");
  const fs::path test_labels = idx_path(folder, "t10k-labels", "idx1");
  require_all(name, {train_images, train_labels, test_images, test_labels});
  return TrainTest{read_idx(train_images, train_labels, name),
                   read_idx(test_images, test_labels, name)};
}

std::optional<TrainTest> try_cifar10(const fs::path& folder) {
  if (!fs::exists(folder / "data_batch_1.bin")) {
    return std::nullopt;
  }
  std::vector<fs::path> train;
  for (int i = 1; i <= 5; ++i) {
    train.push_back(folder / fmt::format("data_batch_{}.bin", i));
  }
  const std::vector<fs::path> test{folder / "test_batch.bin"};
  std::vector<fs::path> all = train;
  all.push_back(test.front());
  require_all("CIFAR-10", all);
  return TrainTest{read_cifar(train, CifarKind::Cifar10), read_cifar(test, CifarKind::Cifar10)};
}

std::optional<TrainTest> try_cifar100(const fs::path& folder) {
  if (!fs::exists(folder / "train.bin")) {
    return std::nullopt;
  }
  const std::vector<fs::path> train{folder / "train.bin"};
  const std::vector<fs::path> test{folder / "test.bin"};
  require_all("CIFAR-100", {train.front(), test.front()});
  return TrainTest{read_cifar(train, CifarKind::Cifar100), read_cifar(test, CifarKind::Cifar100)};
}

std::optional<TrainTest> detect(const fs::path& folder) {
  for (auto* attempt : {try_idx, try_cifar10, try_cifar100}) {
    if (auto data = attempt(folder)) {
      return data;
    }
  }
  for (const char* inner : {"cifar-10-batches-bin", "cifar-100-binary"}) {
    if (fs::is_directory(folder / inner)) {
      return detect(folder / inner);
    }
  }
  return std::nullopt;
}

/// The contents of `folder` for a message: a few names, and what they look like.
std::string contents_of(const fs::path& folder) {
  constexpr std::size_t kMostNames = 8;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (names.empty()) {
    return "no files at all";
  }
  std::ranges::sort(names);
  const auto has = [&](const char* name) { return std::ranges::binary_search(names, name); };
  std::string words;
  if (has("data_batch_1") || (has("train") && has("meta"))) {
    words = " (CIFAR's version for Python: fetch its binary version)";
  } else if (std::ranges::any_of(names, [](const auto& n) { return n.ends_with(".tar.gz"); })) {
    words = " (an archive: unpack it)";
  }
  const std::size_t more = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - more);
  return fmt::format("{}{}{}", fmt::join(names, ", "),
                     more == 0 ? std::string() : fmt::format(" and {} more", more), words);
}

void check_same_shape(const TrainTest& data, const fs::path& folder) {
  const ImageSet& train = data.train;
  const ImageSet& test = data.test;
  if (train.height != test.height || train.width != test.width) {
    throw InvalidArgument(fmt::format(
        "data folder {}: expected test images of {}x{} pixels like the training images, found "
        "{}x{}",
        folder.string(), train.height, train.width, test.height, test.width));
  }
}

}  // namespace

TrainTest load_image_data(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw InvalidArgument(
        fmt::format("data folder {} does not exist: install the default data with 'apt-get install "
                    "dataset-fashion-mnist', or name the folder of another data set with --data",
                    folder.string()));
  }
  std::optional<TrainTest> data = detect(folder);
  if (!data) {
    throw InvalidArgument(
        fmt::format("data folder {}: expected train-images-idx3-ubyte[.gz] (MNIST, Fashion-MNIST), "
                    "data_batch_1.bin (CIFAR-10) or train.bin (CIFAR-100), found {}",
                    folder.string(), contents_of(folder)));
  }
  check_same_shape(*data, folder);
  return std::move(*data);
}

}  // namespace bluefog::examples
