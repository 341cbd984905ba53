#include "examples/train_images/checkpoint.hpp"

#include <torch/torch.h>

#include <string>
#include <system_error>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::examples {
namespace {

namespace fs = std::filesystem;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

void check(const std::error_code& error, const fs::path& path) {
  if (error) {
    throw Error("checkpoint " + path.string() + " cannot be written: " + error.message());
  }
}

/// An archive keeps the whole memory that a tensor lies in. Parameters lie in buckets that hold the
/// rest of the model, so they are copied out.
OutputArchive archive_of(const ImageModel& model) {
  OutputArchive archive;
  for (const auto& parameter : model.named_parameters()) {
    archive.write("parameter/" + parameter.key(), parameter.value().detach().clone());
  }
  for (const auto& buffer : model.named_buffers()) {
    archive.write("buffer/" + buffer.key(), buffer.value().clone(), /*is_buffer=*/true);
  }
  return archive;
}

void copy_from(InputArchive& archive, const std::string& key, at::Tensor into) {
  at::Tensor loaded;
  archive.read(key, loaded);
  TORCH_CHECK(loaded.sizes() == into.sizes(), key, ": expected shape ", into.sizes(), ", found ",
              loaded.sizes());
  into.copy_(loaded);
}

void read_model(InputArchive& archive, ImageModel& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : model.named_parameters()) {
    copy_from(archive, "parameter/" + parameter.key(), parameter.value());
  }
  for (const auto& buffer : model.named_buffers()) {
    copy_from(archive, "buffer/" + buffer.key(), buffer.value());
  }
}

}  // namespace

fs::path checkpoint_file(const fs::path& folder, int rank, int ranks) {
  return folder / ("rank_" + std::to_string(rank) + "_of_" + std::to_string(ranks) + ".pt");
}

void save_checkpoint(const fs::path& file, const ImageModel& model,
                     optimizers::DistributedOptimizer& optimizer, std::int64_t epochs_done) {
  OutputArchive optimizer_archive;
  optimizer.save(optimizer_archive);
  OutputArchive model_archive = archive_of(model);
  OutputArchive archive;
  archive.write("model", model_archive);
  archive.write("optimizer", optimizer_archive);
  archive.write("epochs_done", torch::tensor(epochs_done, torch::kLong), /*is_buffer=*/true);

  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  check(error, file);
  const fs::path unfinished = file.string() + ".new";
  try {
    archive.save_to(unfinished.string());
  } catch (const c10::Error& failure) {
    throw Error("checkpoint " + file.string() +
                " cannot be written: " + failure.what_without_backtrace());
  }
  fs::rename(unfinished, file, error);
  check(error, file);
}

std::int64_t load_checkpoint(const fs::path& file, ImageModel& model,
                             optimizers::DistributedOptimizer& optimizer) {
  if (!fs::exists(file)) {
    throw InvalidArgument("checkpoint " + file.string() +
                          " does not exist: --resume expects a folder that a run with the same "
                          "number of ranks wrote with --checkpoint");
  }
  try {
    InputArchive archive;
    archive.load_from(file.string());
    InputArchive model_archive;
    archive.read("model", model_archive);
    read_model(model_archive, model);
    InputArchive optimizer_archive;
    archive.read("optimizer", optimizer_archive);
    optimizer.load(optimizer_archive);
    at::Tensor epochs_done;
    archive.read("epochs_done", epochs_done, /*is_buffer=*/true);
    return epochs_done.item<std::int64_t>();
  } catch (const c10::Error& failure) {
    throw InvalidArgument("checkpoint " + file.string() +
                          " does not fit this run: " + failure.what_without_backtrace());
  }
}

}  // namespace bluefog::examples
