#include "optimizers/checkpoint.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <compare>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/checks/agreement.hpp"
#include "optimizers/wrapper/checksummed_archive.hpp"

namespace bluefog::optimizers {
namespace {

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors tensors = named_parameters(module);
  for (NamedTensor& buffer : named_buffers(module)) {
    tensors.push_back({"buffer " + buffer.name, std::move(buffer.tensor)});
  }
  return tensors;
}

/// One rank's file, with the parts that every reader needs.
struct SavedPart {
  std::string file;
  int ranks = 0;
  std::int64_t step_count = 0;
  NamedTensors tensors;
  torch::serialize::InputArchive optimizer;
};

c10::IValue read_value(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value;
}

/// The reason why `file` is no whole checkpoint. LibTorch's own words speak of its zip library.
std::string what_is_wrong_with(const std::string& file, bool is_archive) {
  if (is_archive) {
    return "an archive that lacks parts of a checkpoint";
  }
  constexpr std::string_view kBeginOfZip{"PK\3\4", 4};
  std::string begin(kBeginOfZip.size(), '\0');
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    return "a file that cannot be opened";
  }
  stream.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (stream.gcount() == 0) {
    return "an empty file";
  }
  return begin == kBeginOfZip ? "an archive that is cut off, damaged or of something else"
                              : "a file of another kind";
}

SavedPart read_part(const std::string& file) {
  if (!std::filesystem::exists(file)) {
    throw InvalidArgument(fmt::format("checkpoint file '{}': expected it to exist", file));
  }
  bool is_archive = false;
  try {
    SavedPart part;
    part.file = file;
    torch::serialize::InputArchive archive;
    load_with_checksum(archive, file);
    is_archive = true;
    part.ranks = static_cast<int>(read_value(archive, "ranks").toInt());
    part.step_count = read_value(archive, "step_count").toInt();
    torch::serialize::InputArchive model;
    archive.read("model", model);
    const c10::List<std::string> names = read_value(model, "names").to<c10::List<std::string>>();
    for (std::size_t i = 0; i < names.size(); ++i) {
      at::Tensor tensor;
      model.read(std::to_string(i), tensor);
      part.tensors.push_back({names.get(i), tensor});
    }
    archive.read("optimizer", part.optimizer);
    return part;
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // torch throws more than c10::Error: ErrorReport, bad_alloc
    throw InvalidArgument(
        fmt::format("checkpoint file '{}': expected a whole checkpoint of this library, found {}",
                    file, what_is_wrong_with(file, is_archive)));
  }
}

void check_fits(const std::string& file, const SavedPart& part, const NamedTensors& model) {
  if (part.tensors.size() != model.size()) {
    throw InvalidArgument(fmt::format("checkpoint file '{}': expected {} tensors, found {}", file,
                                      model.size(), part.tensors.size()));
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto& [name, tensor] = part.tensors[i];
    if (name != model[i].name || tensor.sizes() != model[i].tensor.sizes() ||
        tensor.scalar_type() != model[i].tensor.scalar_type()) {
      throw InvalidArgument(fmt::format("checkpoint file '{}': expected '{}', {}, found '{}', {}",
                                        file, model[i].name, describe(model[i].tensor), name,
                                        describe(tensor)));
    }
  }
}

void check_same_moment(const std::string& file, const SavedPart& part, const SavedPart& first) {
  if (part.ranks != first.ranks || part.step_count != first.step_count) {
    throw InvalidArgument(fmt::format(
        "checkpoint file '{}': expected step {} of {} ranks as in rank 0's, found step {} of {}",
        file, first.step_count, first.ranks, part.step_count, part.ranks));
  }
}

/// Calls `read`, and has what it throws name `file`.
template <typename Read>
void in_file(const std::string& file, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    throw InvalidArgument(fmt::format("checkpoint file '{}': {}", file, error.what()));
  } catch (const c10::Error& error) {  // LibTorch's own words of its archives
    throw InvalidArgument(
        fmt::format("checkpoint file '{}': expected a whole checkpoint of this library, found: {}",
                    file, error.what_without_backtrace()));
  }
}

struct Moment {
  std::int64_t step_count = -1;
  int ranks = 0;

  friend auto operator<=>(const Moment&, const Moment&) = default;
};

std::string new_file(const std::string& prefix, int rank) {
  return checkpoint_file(prefix, rank) + ".new";
}

/// The moment of `file`, if it is whole.
std::optional<Moment> moment_of(const std::string& file) {
  if (!std::filesystem::exists(file)) {
    return std::nullopt;
  }
  try {
    const SavedPart part = read_part(file);
    return Moment{.step_count = part.step_count, .ranks = part.ranks};
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Whether saving was cut off: a new file has not taken the old one's place.
bool has_new_files(const std::string& prefix) {
  const std::filesystem::path path(prefix);
  const std::string begin = path.filename().string() + ".rank";
  std::error_code error;
  const std::filesystem::directory_iterator folder(
      path.has_parent_path() ? path.parent_path() : ".", error);
  return !error && std::ranges::any_of(folder, [&](const auto& entry) {
    const std::string name = entry.path().filename().string();
    return name.starts_with(begin) && name.ends_with(".pt.new");
  });
}

/// Each rank's file of the newest moment that all of them have.
class Files {
 public:
  explicit Files(const std::string& prefix) : prefix_(prefix) {
    if (!has_new_files(prefix)) {
      return;
    }
    for (const auto& candidate :
         {moment_of(new_file(prefix, 0)), moment_of(checkpoint_file(prefix, 0))}) {
      if (candidate && (!moment_ || *candidate > *moment_) && is_complete(*candidate)) {
        moment_ = candidate;
      }
    }
  }

  [[nodiscard]] std::string of(int rank) const {
    const std::string fresh = new_file(prefix_, rank);
    return moment_ && moment_of(fresh) == moment_ ? fresh : checkpoint_file(prefix_, rank);
  }

 private:
  [[nodiscard]] bool is_complete(const Moment& moment) const {
    for (int rank = 0; rank < moment.ranks; ++rank) {
      if (moment_of(new_file(prefix_, rank)) != moment &&
          moment_of(checkpoint_file(prefix_, rank)) != moment) {
        return false;
      }
    }
    return true;
  }

  std::string prefix_;
  std::optional<Moment> moment_;
};

/// The mean of all ranks' models, counted from the first one: where all are equal it is that model.
/// Tensors that are not floating-point are the first's.
NamedTensors mean_model(const Files& files, const SavedPart& first, const NamedTensors& model) {
  std::vector<at::Tensor> means;
  std::vector<at::Tensor> offsets(first.tensors.size());  // Σ_r (x_r − x_0), of the floating ones
  for (std::size_t i = 0; i < first.tensors.size(); ++i) {
    const at::Tensor& tensor = first.tensors[i].tensor;
    means.push_back(tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor);
    if (tensor.is_floating_point()) {
      offsets[i] = at::zeros_like(means[i]);
    }
  }
  for (int rank = 1; rank < first.ranks; ++rank) {
    const std::string file = files.of(rank);
    const SavedPart part = read_part(file);
    check_same_moment(file, part, first);
    check_fits(file, part, model);
    for (std::size_t i = 0; i < means.size(); ++i) {
      if (offsets[i].defined()) {
        offsets[i] += part.tensors[i].tensor.to(at::kDouble) - means[i];
      }
    }
  }
  NamedTensors mean;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const bool is_averaged = offsets[i].defined();
    mean.push_back(
        {first.tensors[i].name, is_averaged ? means[i] + offsets[i] / first.ranks : means[i]});
  }
  return mean;
}

}  // namespace

std::string checkpoint_file(const std::string& prefix, int rank) {
  return fmt::format("{}.rank{}.pt", prefix, rank);
}

namespace {

void write_part(const std::string& file, const torch::nn::Module& module,
                DistributedOptimizer& optimizer) {
  const torch::NoGradGuard no_grad;
  torch::serialize::OutputArchive state;
  optimizer.save(state);  // ends what is in flight, so that the parameters are final
  torch::serialize::OutputArchive model;
  c10::List<std::string> names;
  for (const NamedTensor& item : tensors_of(module)) {
    model.write(std::to_string(names.size()), item.tensor.detach());
    names.push_back(item.name);
  }
  model.write("names", c10::IValue(names));
  torch::serialize::OutputArchive archive;
  archive.write("ranks", c10::IValue(std::int64_t{optimizer.context().size()}));
  archive.write("step_count", c10::IValue(optimizer.step_count()));
  archive.write("model", model);
  archive.write("optimizer", state);
  save_with_checksum(archive, file);
}

}  // namespace

void save_checkpoint(const std::string& prefix, const torch::nn::Module& module,
                     DistributedOptimizer& optimizer) {
  Context& context = optimizer.context();
  const std::string file = checkpoint_file(prefix, context.rank());
  const std::string fresh = new_file(prefix, context.rank());
  Statement statement;
  statement.lines.push_back(fmt::format("step {}", optimizer.step_count()));
  try {
    write_part(fresh, module, optimizer);
  } catch (const std::exception& error) {
    statement.problem = error.what();
    std::remove(fresh.c_str());
  }
  // A new file stays if this throws: another rank may have gone on, and then it is needed.
  check_ranks_agree(context, "save_checkpoint", statement);
  std::error_code error;
  std::filesystem::rename(fresh, file, error);
  if (error) {
    throw InvalidArgument(
        fmt::format("rank {}, checkpoint file '{}': expected to rename it, found: {}",
                    context.rank(), fresh, error.message()));
  }
}

LoadedCheckpoint load_checkpoint(const std::string& prefix, torch::nn::Module& module,
                                 DistributedOptimizer& optimizer) {
  const torch::NoGradGuard no_grad;
  const NamedTensors model = tensors_of(module);
  Context& context = optimizer.context();
  Statement statement;
  LoadedCheckpoint loaded;
  NamedTensors values;
  std::optional<SavedPart> own;
  try {
    const Files files(prefix);
    SavedPart first = read_part(files.of(0));
    check_fits(files.of(0), first, model);
    loaded = {.saved_ranks = first.ranks,
              .step_count = first.step_count,
              .has_optimizer_state = first.ranks == context.size()};
    if (loaded.has_optimizer_state) {
      const std::string file = files.of(context.rank());
      own.emplace(read_part(file));
      check_same_moment(file, *own, first);
      check_fits(file, *own, model);
      in_file(file, [&] { optimizer.check_saved(own->optimizer); });
      values = own->tensors;
    } else {
      values = mean_model(files, first, model);
    }
    statement.lines.push_back(
        fmt::format("step {} of {} ranks", loaded.step_count, loaded.saved_ranks));
  } catch (const Error& error) {
    statement.problem = error.what();
  }
  check_ranks_agree(context, "load_checkpoint", statement);
  optimizer.drain();
  for (std::size_t i = 0; i < model.size(); ++i) {
    model[i].tensor.detach().copy_(values[i].tensor);
  }
  if (own) {
    in_file(own->file, [&] { optimizer.load(own->optimizer); });
  } else {
    optimizer.restart();
  }
  return loaded;
}

}  // namespace bluefog::optimizers
