#pragma once

#include <cstdint>
#include <string>

#include "optimizers/distributed_optimizer.hpp"

namespace bluefog::optimizers {

/// The file of one rank: "<prefix>.rank<rank>.pt".
[[nodiscard]] std::string checkpoint_file(const std::string& prefix, int rank);

/// Collective. Writes this rank's part of a checkpoint: parameters and buffers of `module`, the
/// wrapped optimizer's and the algorithm's state, and the position in the schedule. Every rank
/// calls it after the same step; it ends what is in flight.
///
/// A new file ("….pt.new") takes the old one's place when all ranks have written theirs: whenever a
/// rank dies, `load_checkpoint` finds the files of one moment. A tensor costs its own elements in
/// the file, although parameters lie in common buckets. A checksum (CRC-32) of all bytes is behind
/// them.
/// @throws InvalidArgument if the file cannot be written, naming it and the reason; PeerFailure on
///   the other ranks; the checkpoint that was there before stays. MismatchError if ranks save after
///   different steps.
/// @throws InvalidArgument with gradient all-reduce between the steps of one round, whose sums of
///   gradients would be lost.
void save_checkpoint(const std::string& prefix, const torch::nn::Module& module,
                     DistributedOptimizer& optimizer);

/// The result of `load_checkpoint`.
struct LoadedCheckpoint {
  /// Number of ranks that wrote the checkpoint.
  int saved_ranks = 0;
  /// Steps that had been made before it.
  std::int64_t step_count = 0;
  /// False if another number of ranks wrote it: the optimizer then starts anew.
  bool has_optimizer_state = false;
};

/// Collective. Reads a checkpoint into `module` and `optimizer`. If saving was cut off, it is the
/// newest one of which all ranks' files are there.
///
/// On as many ranks as wrote it, each reads its own file and goes on exactly as the run that wrote
/// it does, bit for bit. On another number of ranks every rank starts from the mean of the saved
/// models (in float64, counted from rank 0's by rising rank; buffers of integers are rank 0's),
/// with the optimizer's state as it is and the algorithm's as at the start; all files must then be
/// readable by every rank.
/// Files of versions that wrote no checksum are read without one.
/// @throws InvalidArgument naming the file if one is missing, truncated, changed since it was
///   written, of another moment than rank 0's, of another model (naming the tensor), algorithm or
///   class of wrapped optimizer; nothing has changed then. Options or parameters of the wrapped
///   optimizer that do not fit leave it half loaded. PeerFailure on ranks whose own part was good.
LoadedCheckpoint load_checkpoint(const std::string& prefix, torch::nn::Module& module,
                                 DistributedOptimizer& optimizer);

}  // namespace bluefog::optimizers
