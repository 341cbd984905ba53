#include "optimizers/wrapper/saved_optimizer.hpp"

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <exception>
#include <stdexcept>
#include <typeinfo>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {
namespace {

/// The key of the wrapped optimizer's class, which archives of earlier versions lack.
constexpr const char* kWrappedClass = "wrapped_class";
/// Likewise of the rank that has written it, and of their number.
constexpr const char* kRank = "rank";
constexpr const char* kRanks = "ranks";

std::string class_of(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

}  // namespace

void save_optimizer(torch::serialize::OutputArchive& archive, std::string_view algorithm,
                    const torch::optim::Optimizer& wrapped, const StepCounts& counts,
                    const NamedTensors& algorithm_state) {
  archive.write("algorithm", c10::IValue(std::string(algorithm)));
  archive.write(kWrappedClass, c10::IValue(class_of(wrapped)));
  archive.write("step_count", c10::IValue(counts.steps()));
  archive.write("round_count", c10::IValue(counts.rounds()));
  torch::serialize::OutputArchive state;
  save_state(state, algorithm_state);
  archive.write("state", state);
  torch::serialize::OutputArchive wrapped_state;
  wrapped.save(wrapped_state);
  archive.write("wrapped", wrapped_state);
}

void save_place(torch::serialize::OutputArchive& archive, int rank, int size) {
  archive.write(kRank, c10::IValue(rank));
  archive.write(kRanks, c10::IValue(size));
}

SavedOptimizer::SavedOptimizer(torch::serialize::InputArchive& archive, int rank) : rank_(rank) {
  const auto value_of = [&](const char* key) {
    c10::IValue value;
    archive.read(key, value);
    return value;
  };
  const auto refuse = [&](const char* found) {
    throw InvalidArgument(fmt::format(
        "rank {}: expected the saved state of a distributed optimizer, found: {}", rank_, found));
  };
  try {
    algorithm_ = value_of("algorithm").toStringRef();
    step_count_ = value_of("step_count").toInt();
    round_count_ = value_of("round_count").toInt();
    if (c10::IValue name; archive.try_read(kWrappedClass, name)) {
      wrapped_class_ = name.toStringRef();
    }
    if (c10::IValue writer, ranks;
        archive.try_read(kRank, writer) && archive.try_read(kRanks, ranks)) {
      place_ = {writer.toInt(), ranks.toInt()};
    }
    archive.read("state", state_);
    archive.read("wrapped", wrapped_);
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const std::runtime_error& error) {  // of a key that is not there
    refuse(error.what());
  }
}

void SavedOptimizer::check_fits(std::string_view algorithm,
                                const torch::optim::Optimizer& wrapped) const {
  if (algorithm_ != algorithm) {
    throw InvalidArgument(fmt::format("rank {}: expected the saved state of {}, found that of {}",
                                      rank_, algorithm, algorithm_));
  }
  if (wrapped_class_ && *wrapped_class_ != class_of(wrapped)) {
    throw InvalidArgument(
        fmt::format("rank {}: expected the saved state of a {}, found that of a {}", rank_,
                    class_of(wrapped), *wrapped_class_));
  }
}

void SavedOptimizer::check_is_own(std::string_view conserved, int size) const {
  if (!conserved.empty() && place_ &&
      *place_ != std::pair<std::int64_t, std::int64_t>(rank_, size)) {
    throw InvalidArgument(fmt::format(
        "rank {}: expected what rank {} of {} has saved, since what {} carries {}, found that of rank "
        "{} of {}; to begin anew load the models alone",
        rank_, rank_, size, algorithm_, conserved, place_->first, place_->second));
  }
}

NamedTensors SavedOptimizer::algorithm_state(const NamedTensors& state) {
  return read_state(state_, state);
}

void SavedOptimizer::load_wrapped(torch::optim::Optimizer& wrapped) {
  try {
    wrapped.load(wrapped_);
  } catch (const std::exception&) {  // torch throws more than c10::Error
    throw InvalidArgument(fmt::format(
        "rank {}: expected the saved state of a {} with these parameters, found that of another "
        "class or of other parameters, which has left the optimizer half loaded",
        rank_, class_of(wrapped)));
  }
}

}  // namespace bluefog::optimizers
