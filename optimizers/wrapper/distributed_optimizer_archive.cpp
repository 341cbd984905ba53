// The state of a distributed optimizer in an archive: writing it, and going on from it.
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <string>
#include <typeinfo>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/wrapper/distributed_optimizer_state.hpp"

namespace bluefog::optimizers {

void DistributedOptimizer::State::save(torch::serialize::OutputArchive& archive) {
  if (sums_gradients()) {
    throw StateError(fmt::format(
        "rank {}: expected to save after a whole round of {} steps, found {} steps made; the sums "
        "of gradients would be lost",
        context_->rank(), options_.num_steps_per_communication, step_count_));
  }
  drain();
  archive.write("algorithm", c10::IValue(std::string(name_of(options_.algorithm))));
  archive.write("step_count", c10::IValue(step_count_));
  archive.write("round_count", c10::IValue(round_count_));
  torch::serialize::OutputArchive state;
  save_state(state, algorithm_->state());
  archive.write("state", state);
  torch::serialize::OutputArchive wrapped;
  optimizer_.save(wrapped);
  archive.write("wrapped", wrapped);
}

void DistributedOptimizer::State::load(torch::serialize::InputArchive& archive) {
  std::string algorithm;
  std::int64_t step_count = 0;
  std::int64_t round_count = 0;
  torch::serialize::InputArchive state;
  torch::serialize::InputArchive wrapped;
  const auto value_of = [&](const char* key) {
    c10::IValue value;
    archive.read(key, value);
    return value;
  };
  try {
    algorithm = value_of("algorithm").toStringRef();
    step_count = value_of("step_count").toInt();
    round_count = value_of("round_count").toInt();
    archive.read("state", state);
    archive.read("wrapped", wrapped);
  } catch (const c10::Error& error) {
    throw InvalidArgument(
        fmt::format("rank {}: expected the saved state of a distributed optimizer, found: {}",
                    context_->rank(), error.what_without_backtrace()));
  }
  if (algorithm != name_of(options_.algorithm)) {
    throw InvalidArgument(fmt::format("rank {}: expected the saved state of {}, found that of {}",
                                      context_->rank(), name_of(options_.algorithm), algorithm));
  }
  take_back_parameters();
  algorithm_->discard();
  load_state(state, algorithm_->state());
  try {
    optimizer_.load(wrapped);
  } catch (const std::exception&) {  // torch throws more than c10::Error
    throw InvalidArgument(fmt::format(
        "rank {}: expected the saved state of a {} with these parameters, found that of another "
        "class or of other parameters, which has left the optimizer half loaded",
        context_->rank(), c10::demangle(typeid(optimizer_).name())));
  }
  step_count_ = step_count;
  round_count_ = round_count;
  made_plan_ = nullptr;
  algorithm_->expect(communicates_next());
}

}  // namespace bluefog::optimizers
