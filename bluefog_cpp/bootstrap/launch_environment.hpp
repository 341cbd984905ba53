#pragma once

#include <map>
#include <string>

namespace bluefog {

/// The launcher, and this process's place among the ranks, as the environment names them. MPI is
/// not asked.
struct LaunchEnvironment {
  /// "Open MPI", "PMIx", "PMI"; empty if no launcher started this process.
  std::string launcher = {};
  /// Number of ranks, or 0 where the environment does not tell.
  int size = 0;
  /// Number of ranks on this host, or 0 where the environment does not tell.
  int local_size = 0;
  /// This process's rank, or −1 where the environment does not tell.
  int rank = -1;
  /// The variables that tell, with their values, for messages.
  std::string told_by = {};
  /// A name that the ranks of this host share with no other job, empty where there is none.
  std::string job = {};

  [[nodiscard]] bool launched() const noexcept { return !launcher.empty(); }

  /// Reads this process's environment.
  /// @throws UnsupportedError for several ranks whose launcher MPI cannot ask for the others:
  ///   torchrun, or whoever else set RANK and WORLD_SIZE; MVAPICH's and PALS's launchers; `srun`
  ///   without `--mpi=pmix`. Each would be rank 0 of 1. Also for PMIx variables that name a job and
  ///   no server to ask about it, and for torchrun's that contradict those of Open MPI or PMIx.
  [[nodiscard]] static LaunchEnvironment detect();

  /// Reads `variables` in place of the environment.
  [[nodiscard]] static LaunchEnvironment detect(
      const std::map<std::string, std::string>& variables);
};

}  // namespace bluefog
