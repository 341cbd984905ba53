#pragma once

#include <vector>

#include "tools/bfrun/options.hpp"
#include "tools/bfrun/start/environment.hpp"
#include "tools/bfrun/start/hosts.hpp"

namespace bluefog::bfrun {

/// The hosts of the ranks.
struct Machines {
  std::vector<HostSlots> hosts;  ///< with the ranks of each
  bool other_hosts = false;
  bool includes_this_host = true;
  bool by_slurm = false;  ///< Slurm starts mpirun's daemons on the other hosts
};

/// The hosts that `options` name, else those of the Slurm job around this process, else this
/// machine; each with the number of its ranks.
///
/// @throws UsageError as parse_host_list, read_hostfile and assign_ranks.
[[nodiscard]] Machines choose_machines(const Options& options, const Environment& environment);

}  // namespace bluefog::bfrun
