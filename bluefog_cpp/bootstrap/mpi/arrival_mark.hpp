#pragma once

#include <string>

#include "bluefog_cpp/base/unique_fd.hpp"

namespace bluefog::mpi {

/// Says to the other ranks of this host and job, as long as it lives, that this rank has come:
/// MPI's collectives do not tell who is missing. A socket in the abstract namespace, of which
/// nothing is left behind. Where there is no room for one, the rank counts as not seen.
class ArrivalMark {
 public:
  /// @param job what the launcher calls this job; the same on all of its ranks.
  ArrivalMark(const std::string& job, int rank);

  /// The mark of `rank` on this host is there.
  [[nodiscard]] static bool is_seen(const std::string& job, int rank);

  /// "seen on this host: ranks 1, 2; not seen: 0", of the ranks 0 … size − 1.
  [[nodiscard]] static std::string roll_call(const std::string& job, int size);

 private:
  shm::UniqueFd socket_;
};

/// The launcher's name for this job, empty where it gives none.
[[nodiscard]] std::string job_name();

}  // namespace bluefog::mpi
