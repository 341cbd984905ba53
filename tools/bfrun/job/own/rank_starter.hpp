#pragma once

#include <sys/types.h>

#include <utility>

#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/own/own_launcher.hpp"
#include "tools/bfrun/job/pipe.hpp"

namespace bluefog::bfrun {

/// Whether a rank is one of the first, or joins those that run.
enum class Start { First, Joins };

/// What starts a rank on another host.
struct FarRank {
  pid_t process = -1;
  Descriptor control;
  Descriptor errors;
};

/// The ranks, the first time and again, and their streams.
class RankStarter {
 public:
  /// @param ranks outlives this object.
  explicit RankStarter(const OwnRanks& ranks);

  [[nodiscard]] pid_t start(int rank, const Slot& slot, Start which) const;
  /// On another host.
  [[nodiscard]] FarRank start_far(int rank, const Slot& slot, Start which) const;
  /// All have been started. Nobody but them holds their ends, unless more may be started.
  void finish();

  [[nodiscard]] int errors() const { return errors_.read_end.get(); }
  /// To rank 0, where this process reads a terminal.
  [[nodiscard]] Descriptor take_input() { return std::move(input_.write_end); }

 private:
  const OwnRanks& ranks_;
  Descriptor nothing_;
  Pipe errors_;
  Pipe input_;
};

}  // namespace bluefog::bfrun
