#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bfrun/rank/binding.hpp"
#include "tools/bfrun/start/environment.hpp"

namespace bluefog::bfrun {

/// The ranks and sizes of a process, as Open MPI's mpirun or bfrun's own launcher tells them.
struct RankIdentity {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;

  bool operator==(const RankIdentity&) const = default;
};

/// Reads `OMPI_COMM_WORLD_*`, or RANK and its like of a rank that bfrun starts; nothing when one of
/// them is missing or makes no sense.
[[nodiscard]] std::optional<RankIdentity> read_identity(const Environment& environment);

/// Sets what a rank needs: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; OMP_NUM_THREADS and
/// MKL_NUM_THREADS unless the user set one; yielding waits in MPI when ranks outnumber cores;
/// thresholds of the C library's malloc unless the user set one, so that a rank keeps what it
/// frees. Removes the variables that only bfrun reads.
void add_rank_variables(const RankIdentity& identity, const Placement& placement,
                        Environment& environment);

/// Runs `command` as one rank, watches it, reports its start and its end to bfrun on standard
/// error, and ends as it did: with its exit code, or by its signal.
///
/// mpirun, or bfrun itself, starts this (`bfrun --exec-rank -- COMMAND`) where it would start
/// COMMAND. The command stays in this process's group, which mpirun signals as a whole; a signal
/// sent to this process alone is passed on. If this process or mpirun's daemon is killed, so is the
/// command. Does not use MPI or PMIx itself.
/// @param control `Watcher::Rank::control`.
[[nodiscard]] int run_rank(const std::vector<std::string>& command, int control = -1);

/// Runs the rank that a bfrun on another host describes on standard input (`FarStart`), as `run_rank`.
/// @throws InvalidArgument for what is no such description.
[[nodiscard]] int run_far_rank();

}  // namespace bluefog::bfrun
