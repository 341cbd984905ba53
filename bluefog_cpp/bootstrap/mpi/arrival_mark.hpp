#pragma once

#include <string>

#include "bluefog_cpp/base/unique_fd.hpp"

namespace bluefog::mpi {

/// Shows the other ranks of this host and job, as long as it lives, that this rank has come: MPI's
/// collectives do not tell who is missing. The mark is a socket in the abstract namespace, which
/// leaves nothing behind; a rank that has no room for one counts as not seen.
class ArrivalMark {
 public:
  /// @param job the launcher's name for this job; the same on all of its ranks.
  ArrivalMark(const std::string& job, int rank);

  /// Whether the mark of `rank` is there on this host.
  [[nodiscard]] static bool is_seen(const std::string& job, int rank);

  /// "seen on this host: ranks 1, 2; not seen: 0", of the ranks 0 … size − 1.
  [[nodiscard]] static std::string roll_call(const std::string& job, int size);

 private:
  shm::UniqueFd socket_;
};

/// The launcher's name for this job, empty where it gives none.
[[nodiscard]] std::string job_name();

}  // namespace bluefog::mpi
