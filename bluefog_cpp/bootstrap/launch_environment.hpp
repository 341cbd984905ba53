#pragma once

#include <map>
#include <string>

namespace bluefog {

/// The ways in which ranks that a launcher has started find each other, in the order in which
/// their variables are looked for.
enum class LaunchWay {
  Single,       ///< no launcher started this process, or it started one rank alone
  Bfrun,        ///< bfrun without mpirun keeps a store
  Torchrun,     ///< torchrun's agent keeps a store of torch
  Mpi,          ///< MPI
  Environment,  ///< rank 0 keeps a store at MASTER_ADDR and MASTER_PORT
  Slurm,        ///< rank 0 keeps a store on the first host of the step
};

/// The launcher, and this process's place among the ranks, as the environment names them. MPI is
/// not asked.
struct LaunchEnvironment {
  LaunchWay way = LaunchWay::Single;
  /// "bfrun", "torchrun", "Open MPI", "PMIx", "PMI", "MASTER_ADDR and MASTER_PORT", "Slurm"; empty
  /// if no launcher started this process.
  std::string launcher = {};
  /// Number of ranks, or 0 where the environment does not tell.
  int size = 0;
  /// Number of ranks on this host, or 0 where the environment does not tell.
  int local_size = 0;
  /// This process's rank, or −1 where the environment does not tell.
  int rank = -1;
  /// The variables that state rank and size, with their values, for messages.
  std::string stated_by = {};
  /// A name that the ranks of this host share with no other job, empty where there is none.
  std::string job = {};
  /// The place of the store, "HOST:PORT"; empty where there is none.
  std::string store = {};
  /// The secret of the store, where it has one.
  std::string secret = {};
  /// Begins the keys of this launch in the store: another one for each restart.
  std::string prefix = {};
  /// Whether restarts have the same prefix, since ranks may count them differently.
  bool has_attempts = false;
  /// Whether the launcher itself serves the store, so that rank 0 must not.
  bool is_store_served = false;

  [[nodiscard]] bool launched() const noexcept { return !launcher.empty(); }

  /// Reads this process's environment.
  /// @throws UnsupportedError for several ranks that cannot find each other: RANK and WORLD_SIZE
  ///   without MASTER_ADDR and MASTER_PORT; a number alone (WORLD_SIZE, SLURM_NTASKS) without
  ///   BLUEFOG_EXPECT_SIZE=1; launchers of MVAPICH, HPE, PALS and their like. Each
  ///   would be rank 0 of 1. Also for PMIx variables that name a job and no server to ask about it,
  ///   and for two launchers whose variables name different ranks or numbers of ranks. Slurm's are
  ///   compared with nobody's: its tasks may be launchers themselves.
  /// @throws InvalidArgument for a store's place that is none, and for a rank or a number of ranks
  ///   that makes no sense, or a rank other than 0 without a number beside it (RANK=1 alone).
  ///   Empty variables count as not set.
  [[nodiscard]] static LaunchEnvironment detect();

  /// Reads `variables` in place of the environment.
  [[nodiscard]] static LaunchEnvironment detect(
      const std::map<std::string, std::string>& variables);

  /// Compares the place that a program gives beside a store of its own with what launchers'
  /// variables say, where these name both a rank and a number of ranks.
  /// @throws UnsupportedError that names both where they differ. Slurm's are not compared.
  static void check_handed_place(int rank, int size);
  /// The same with `variables` in place of the environment.
  static void check_handed_place(int rank, int size,
                                 const std::map<std::string, std::string>& variables);
};

}  // namespace bluefog
