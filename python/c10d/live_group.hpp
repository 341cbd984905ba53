#pragma once

#include "python/c10d/group_place.hpp"

namespace bluefog::c10d_backend {

/// Counts the groups of this process as long as they are open. A fork of the process inherits their
/// objects, with neither the threads nor the connections behind them: a group that it made in the
/// same store would take its parent's place there.
class LiveGroup {
 public:
  explicit LiveGroup(const GroupPlace& place);
  LiveGroup(const LiveGroup&) = delete;
  LiveGroup& operator=(const LiveGroup&) = delete;
  ~LiveGroup() { leave(); }

  /// The group is closed. Does nothing in a fork, and the second time.
  void leave() noexcept;

  /// @throws StateError in a fork of a process that had groups then.
  static void refuse_fork(const GroupPlace& place);

 private:
  bool is_counted_ = true;
};

}  // namespace bluefog::c10d_backend
