#pragma once

#include <torch/serialize/input-archive.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "optimizers/parameter.hpp"
#include "optimizers/wrapper/step_counts.hpp"

namespace torch::optim {
class Optimizer;
}

namespace torch::serialize {
class OutputArchive;
}

namespace bluefog::optimizers {

/// Writes a distributed optimizer into `archive`: its counts, and the states of its algorithm and
/// of the optimizer that it wraps. The parameters are not written.
void save_optimizer(torch::serialize::OutputArchive& archive, std::string_view algorithm,
                    const torch::optim::Optimizer& wrapped, const StepCounts& counts,
                    const NamedTensors& algorithm_state);

/// Writes besides whose part of the state of all ranks it is.
void save_place(torch::serialize::OutputArchive& archive, int rank, int size);

/// What `save_optimizer` wrote, read but not yet applied: nothing has changed before the first
/// `load_`.
class SavedOptimizer {
 public:
  /// @param rank of the reader, for messages.
  /// @throws InvalidArgument for an archive that lacks a part.
  SavedOptimizer(torch::serialize::InputArchive& archive, int rank);

  /// @throws InvalidArgument if it was written with another algorithm or another class of wrapped
  ///   optimizer; archives of earlier versions do not name the class.
  void check_fits(std::string_view algorithm, const torch::optim::Optimizer& wrapped) const;

  /// @param conserved `AlgorithmMemory::conserved` of the algorithm.
  /// @param size the number of ranks now.
  /// @throws InvalidArgument if that is not empty, and another rank has written it, or one of another
  ///   number of ranks; archives of earlier versions do not tell.
  void check_is_own(std::string_view conserved, int size) const;

  /// The saved tensors of the same names as `state`'s; those that are missing are left out.
  [[nodiscard]] NamedTensors algorithm_state(const NamedTensors& state);
  /// @throws InvalidArgument for other parameters, which leave the optimizer half loaded.
  void load_wrapped(torch::optim::Optimizer& wrapped);
  [[nodiscard]] std::int64_t step_count() const noexcept { return step_count_; }
  [[nodiscard]] std::int64_t round_count() const noexcept { return round_count_; }

 private:
  int rank_;
  std::string algorithm_;
  std::optional<std::string> wrapped_class_;
  /// Rank and number of ranks.
  std::optional<std::pair<std::int64_t, std::int64_t>> place_;
  std::int64_t step_count_ = 0;
  std::int64_t round_count_ = 0;
  torch::serialize::InputArchive state_;
  torch::serialize::InputArchive wrapped_;
};

}  // namespace bluefog::optimizers
