#include "tools/bfrun/start/machines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/start/mpirun.hpp"
#include "tools/bfrun/start/network.hpp"
#include "tools/bfrun/start/slurm.hpp"

namespace bluefog::bfrun {
namespace {

bool is_here(const HostSlots& host) {
  const std::string own = host_name();
  return is_this_host(host.name, own) ||
         (share_first_label({host}, own) && resolves_to_this_machine(host.name));
}

/// The hosts of the Slurm job around this process. Variables of a job elsewhere, or of one that has
/// ended, are not believed.
std::vector<HostSlots> hosts_of_slurm(const Options& options, const Environment& environment) {
  const auto hosts = slurm_hosts(environment);
  if (!hosts || std::ranges::none_of(*hosts, is_here)) {
    return {};
  }
  if (check_program("srun", value_of(environment, "PATH")) != 0) {
    return {};
  }
  std::vector<HostSlots> granted = *hosts;
  std::int64_t slots = 0;
  for (const HostSlots& host : granted) {
    slots += host.slots;
  }
  if (options.num_proc > slots) {
    say(fmt::format("-np {} is more than the {} tasks that Slurm has granted: ranks share cores",
                    options.num_proc, slots));
    const auto times = static_cast<int>((options.num_proc + slots - 1) / slots);
    for (HostSlots& host : granted) {
      host.slots *= times;
    }
  }
  return granted;
}

}  // namespace

Machines choose_machines(const Options& options, const Environment& environment) {
  Machines machines;
  std::vector<HostSlots> given;
  if (!options.hosts.empty()) {
    given = parse_host_list(options.hosts);
  }
  if (!options.hostfile.empty()) {
    given = read_hostfile(options.hostfile);
  }
  const bool by_slurm = given.empty();
  if (by_slurm) {
    given = hosts_of_slurm(options, environment);
  }
  if (std::ranges::all_of(given, is_here)) {
    // Any number of ranks may share the cores of this machine alone.
    machines.hosts.push_back({"localhost", options.num_proc});
    return machines;
  }
  machines.by_slurm = by_slurm;
  for (HostSlots& host : given) {
    if (is_here(host)) {
      host.name = host_name();  // mpirun knows this machine by no other name
    }
  }
  machines.hosts = assign_ranks(given, options.num_proc);
  machines.other_hosts = true;
  machines.includes_this_host = std::ranges::any_of(machines.hosts, is_here);
  return machines;
}

}  // namespace bluefog::bfrun
