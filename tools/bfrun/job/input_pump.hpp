#pragma once

#include <poll.h>

#include <string>

#include "tools/bfrun/job/descriptor.hpp"

namespace bluefog::bfrun {

/// Hands what is typed at the terminal on to rank 0. Ranks are in process groups of their own,
/// which may not read it.
class InputPump {
 public:
  /// @param to_rank the end of a pipe to write to; none where nothing is to be handed on.
  explicit InputPump(Descriptor to_rank);

  /// The descriptor and events to wait for; a negative descriptor: nothing.
  [[nodiscard]] pollfd source() const;
  /// Does what `source` was waiting for.
  void serve(const pollfd& source);

 private:
  Descriptor to_rank_;
  std::string waiting_;
};

}  // namespace bluefog::bfrun
