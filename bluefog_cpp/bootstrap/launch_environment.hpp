#pragma once

#include <map>
#include <string>

namespace bluefog {

/// The launcher and the number of ranks as the environment names them. MPI is not asked.
struct LaunchEnvironment {
  /// "Open MPI", "PMIx", "PMI"; empty if no launcher started this process.
  std::string launcher;
  /// Number of ranks, or 0 where the environment does not tell.
  int size = 0;

  [[nodiscard]] bool launched() const noexcept { return !launcher.empty(); }

  /// Reads this process's environment.
  /// @throws UnsupportedError for several Slurm tasks that were started without a process manager
  ///         interface (`srun` without `--mpi=pmix`): they could not find each other; and for PMIx
  ///         variables that name a job and no server to ask about it.
  [[nodiscard]] static LaunchEnvironment detect();

  /// Reads `variables` in place of the environment.
  [[nodiscard]] static LaunchEnvironment detect(
      const std::map<std::string, std::string>& variables);
};

}  // namespace bluefog
