#pragma once

#include <string>
#include <vector>

#include "tools/bfrun/options.hpp"
#include "tools/bfrun/start/hosts.hpp"
#include "tools/bfrun/start/mpirun.hpp"

namespace bluefog::bfrun {

/// Everything that decides how mpirun is called.
struct MpirunCall {
  std::string mpirun;  ///< path
  OpenMpiVersion version;
  std::string bfrun;  ///< path of this program, which watches each rank
  bool as_root = false;
  bool no_input = false;         ///< standard input is empty: mpirun would never tell rank 0 so
  bool other_hosts = false;      ///< a host that is not this machine takes part
  std::vector<HostSlots> hosts;  ///< ranks of each host
  std::vector<std::string> extra_flags;  ///< `--extra-mpi-flags`, split
  std::vector<std::string> exported;     ///< names for -x, used when other hosts take part
};

/// The words of the mpirun command line.
///
/// Ranks fill the hosts in order; mpirun binds nothing, each rank's watcher does (mpirun's own
/// binding leaves the affinity of its caller). @throws UsageError for --fault-tolerant with an
/// Open MPI older than 5.
[[nodiscard]] std::vector<std::string> build_mpirun_command(const Options& options,
                                                            const MpirunCall& call);

/// Whether `flags` hold the option `name` (without dashes), as `-name`, `--name` or `--name=…`.
[[nodiscard]] bool has_flag(const std::vector<std::string>& flags, const std::string& name);

}  // namespace bluefog::bfrun
