// The state of a distributed optimizer in an archive: writing it, and going on from it.
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/wrapper/distributed_optimizer_state.hpp"

namespace bluefog::optimizers {
namespace {

/// The key of the wrapped optimizer's class, which archives of earlier versions lack.
constexpr const char* kWrappedClass = "wrapped_class";

std::string class_of(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

/// The parts of an archive of `DistributedOptimizer::save`.
struct SavedOptimizer {
  std::string algorithm;
  std::optional<std::string> wrapped_class;
  std::int64_t step_count = 0;
  std::int64_t round_count = 0;
  torch::serialize::InputArchive state;
  torch::serialize::InputArchive wrapped;
};

SavedOptimizer read_saved(torch::serialize::InputArchive& archive, int rank) {
  SavedOptimizer saved;
  const auto value_of = [&](const char* key) {
    c10::IValue value;
    archive.read(key, value);
    return value;
  };
  try {
    saved.algorithm = value_of("algorithm").toStringRef();
    saved.step_count = value_of("step_count").toInt();
    saved.round_count = value_of("round_count").toInt();
    if (c10::IValue name; archive.try_read(kWrappedClass, name)) {
      saved.wrapped_class = name.toStringRef();
    }
    archive.read("state", saved.state);
    archive.read("wrapped", saved.wrapped);
  } catch (const c10::Error& error) {
    throw InvalidArgument(
        fmt::format("rank {}: expected the saved state of a distributed optimizer, found: {}", rank,
                    error.what_without_backtrace()));
  }
  return saved;
}

void check_fits(const SavedOptimizer& saved, std::string_view algorithm,
                const torch::optim::Optimizer& wrapped, int rank) {
  if (saved.algorithm != algorithm) {
    throw InvalidArgument(fmt::format("rank {}: expected the saved state of {}, found that of {}",
                                      rank, algorithm, saved.algorithm));
  }
  if (saved.wrapped_class && *saved.wrapped_class != class_of(wrapped)) {
    throw InvalidArgument(
        fmt::format("rank {}: expected the saved state of a {}, found that of a {}", rank,
                    class_of(wrapped), *saved.wrapped_class));
  }
}

}  // namespace

void DistributedOptimizer::State::save(torch::serialize::OutputArchive& archive) {
  if (sums_gradients()) {
    throw StateError(fmt::format(
        "rank {}: expected to save after a whole round of {} steps, found {} steps made; the sums "
        "of gradients would be lost",
        context_->rank(), options_.num_steps_per_communication, step_count_));
  }
  drain();
  archive.write("algorithm", c10::IValue(std::string(name_of(options_.algorithm))));
  archive.write(kWrappedClass, c10::IValue(class_of(optimizer_)));
  archive.write("step_count", c10::IValue(step_count_));
  archive.write("round_count", c10::IValue(round_count_));
  torch::serialize::OutputArchive state;
  save_state(state, algorithm_->state());
  archive.write("state", state);
  torch::serialize::OutputArchive wrapped;
  optimizer_.save(wrapped);
  archive.write("wrapped", wrapped);
}

void DistributedOptimizer::State::check_saved(torch::serialize::InputArchive& archive) const {
  check_fits(read_saved(archive, context_->rank()), name_of(options_.algorithm), optimizer_,
             context_->rank());
}

void DistributedOptimizer::State::load(torch::serialize::InputArchive& archive) {
  SavedOptimizer saved = read_saved(archive, context_->rank());
  check_fits(saved, name_of(options_.algorithm), optimizer_, context_->rank());
  take_back_parameters();
  algorithm_->discard();
  load_state(saved.state, algorithm_->state());
  try {
    optimizer_.load(saved.wrapped);
  } catch (const std::exception&) {  // torch throws more than c10::Error
    throw InvalidArgument(fmt::format(
        "rank {}: expected the saved state of a {} with these parameters, found that of another "
        "class or of other parameters, which has left the optimizer half loaded",
        context_->rank(), class_of(optimizer_)));
  }
  step_count_ = saved.step_count;
  round_count_ = saved.round_count;
  if (bound_values_) {
    bound_values_->forget();
  }
  plans_->forget();
  algorithm_->expect(communicates_next());
}

}  // namespace bluefog::optimizers
