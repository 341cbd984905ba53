#pragma once

#include <cstdint>
#include <string_view>

namespace bluefog::optimizers {

/// The treatment of a model's buffers, the tensors that it keeps beside its parameters, such as the
/// running statistics of batch normalisation.
enum class BufferPolicy : std::uint8_t {
  /// Buffers stay each rank's own. Right as long as ranks draw from the same data; evaluating such
  /// a model uses the statistics of that rank.
  Local,
  /// `finish` replaces floating-point buffers by their mean over all ranks; others stay local.
  /// `finish` is then collective.
  AverageOnFinish,
  /// The same after every communication round as well.
  AverageEveryRound,
  /// After every communication round and in `finish` all buffers become those of rank 0, as DDP
  /// does.
  BroadcastFromRankZero,
};

/// "local", "average_on_finish", …; "unknown" for other numbers.
[[nodiscard]] std::string_view name_of(BufferPolicy policy);

}  // namespace bluefog::optimizers
