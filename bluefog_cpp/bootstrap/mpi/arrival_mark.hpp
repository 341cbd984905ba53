#pragma once

#include <string>
#include <vector>

#include "bluefog_cpp/base/files/unique_fd.hpp"

namespace bluefog::mpi {

/// Shows the other ranks of this host and job, as long as it lives, that this rank has come:
/// neither MPI's start nor its collectives tell who is missing. The mark is a socket in the
/// abstract namespace, which leaves nothing behind; a rank that has no room for one counts as not
/// seen.
class ArrivalMark {
 public:
  /// @param job the name of this job on this host (`LaunchEnvironment::job`); empty: no mark.
  ArrivalMark(const std::string& job, int rank);

  /// Whether the mark of `rank` is there on this host.
  [[nodiscard]] static bool is_seen(const std::string& job, int rank);

 private:
  shm::UniqueFd socket_;
};

/// The ranks of a job, 0 … size − 1, by whether they have been seen on this host.
class RollCall {
 public:
  RollCall(std::string job, int size);

  /// Looks for their marks. Ranks that gave up, or ended, have come all the same.
  void look();

  /// Whether all were there at the last look.
  [[nodiscard]] bool all_are_here() const noexcept { return all_are_here_; }
  /// "seen on this host: 1, 2; not seen: 0".
  [[nodiscard]] std::string text() const;

 private:
  std::string job_;
  std::vector<bool> seen_;
  bool all_are_here_ = false;
};

}  // namespace bluefog::mpi
