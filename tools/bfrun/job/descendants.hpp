#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

#include "tools/bfrun/job/process.hpp"

namespace bluefog::bfrun {

/// The processes that this one has started, and what they have started in turn.
///
/// Descendants whose parents end become children of this process (`PR_SET_CHILD_SUBREAPER`), in
/// whatever session they are: so none of them gets lost. SIGCHLD must be blocked, and nobody else
/// may wait for children while a member function runs. Children that the process had before it
/// became this program (`exec` in a shell with background jobs) are left alone.
class Descendants {
 public:
  using milliseconds = std::chrono::milliseconds;

  Descendants();

  /// Waits for all of them to end by themselves, at most `longest`. Returns whether they have.
  bool await(milliseconds longest) const;
  /// Sends SIGTERM to each and waits as `await`.
  bool ask_to_end(milliseconds longest) const;
  /// Sends SIGKILL to each until none is left, at most for `longest`. Returns whether none is.
  bool kill_all(milliseconds longest) const;
  /// Sends SIGKILL to those that are in another process group than this process.
  void kill_other_groups() const;

 private:
  [[nodiscard]] std::vector<pid_t> children() const;

  std::vector<pid_t> spared_;
};

/// Waits for the children that have ended, adopted ones too; gives the status of `pid`, if it is
/// among them. Does not block.
std::optional<ExitStatus> reap_children(pid_t pid = -1);

/// The children of process `pid`, dead ones that were not waited for included.
[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);

}  // namespace bluefog::bfrun
