#include "tools/bfrun/job/job.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "tools/bfrun/build_info.hpp"
#include "tools/bfrun/job/job_monitor.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/job/session_folder.hpp"
#include "tools/bfrun/shell_words.hpp"
#include "tools/bfrun/start/environment.hpp"
#include "tools/bfrun/start/hosts.hpp"
#include "tools/bfrun/start/mpirun.hpp"
#include "tools/bfrun/start/mpirun_command.hpp"
#include "tools/bfrun/start/network.hpp"

namespace bluefog::bfrun {
namespace {

void say(const std::string& line) { write_to_stderr("bfrun: " + line + "\n"); }

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

/// The hosts of the ranks.
struct Machines {
  std::vector<HostSlots> hosts;  ///< with the ranks of each
  bool other_hosts = false;
  bool includes_this_host = true;
};

Machines choose_machines(const Options& options) {
  std::vector<HostSlots> given;
  if (!options.hosts.empty()) given = parse_host_list(options.hosts);
  if (!options.hostfile.empty()) given = read_hostfile(options.hostfile);
  const auto is_here = [own = host_name()](const HostSlots& host) {
    return is_this_host(host.name, own);
  };
  const bool only_here = std::all_of(given.begin(), given.end(), is_here);
  // Any number of ranks may share the cores of this machine alone.
  if (only_here && given.size() <= 1) return {{{"localhost", options.num_proc}}, false, true};
  Machines machines;
  machines.hosts = assign_ranks(given, options.num_proc);
  machines.other_hosts = true;
  machines.includes_this_host = std::any_of(machines.hosts.begin(), machines.hosts.end(), is_here);
  return machines;
}

void check_interfaces(const Options& options, const Machines& machines) {
  if (!machines.includes_this_host) return;
  for (const auto& name : split_list(options.network_interface)) {
    if (name.find('/') == std::string::npos && !has_interface(name)) {
      throw UsageError(fmt::format("--network-interface: this host has no interface '{}'", name));
    }
  }
}

/// A mistyped number of ranks would fill the machine for minutes.
void check_crowd(const Options& options, int cores) {
  constexpr std::int64_t kMostRanksPerCore = 64;
  const std::int64_t most = kMostRanksPerCore * std::max(cores, 1);
  if (options.oversubscribe || options.num_proc <= most) return;
  throw UsageError(fmt::format(
      "-np {}: this machine takes at most {} ranks, {} for each of its {} core{}; --oversubscribe "
      "takes as many as you say",
      options.num_proc, most, kMostRanksPerCore, cores, cores == 1 ? "" : "s"));
}

MasterAddress choose_master(const Options& options, const Machines& machines) {
  MasterAddress master{"127.0.0.1", free_port()};
  if (!machines.other_hosts) return master;
  const std::string& first = machines.hosts.front().name;
  if (!is_this_host(first, host_name())) {
    master.address = first;
    return master;
  }
  const auto interfaces = split_list(options.network_interface);
  const std::string address =
      interfaces.empty() ? std::string() : interface_address(interfaces.front());
  master.address = !address.empty() ? address : first == "localhost" ? host_name() : first;
  return master;
}

std::string draw_report_key() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

PlacementNotes make_notes(const Environment& environment, bool mpirun_binds) {
  PlacementNotes notes;
  notes.mpirun_binds = mpirun_binds;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    const std::string value = value_of(environment, name);
    if (notes.threads.empty() && !value.empty()) notes.threads = fmt::format("{}={}", name, value);
  }
  return notes;
}

void check_command(const Options& options, const Environment& environment) {
  const std::string& program = options.command.front();
  const int code = check_program(program, value_of(environment, "PATH"));
  if (code == 0) return;
  throw CommandError(
      code, fmt::format("cannot run '{}': {}", program,
                        code == kNotFoundCode ? "no such program" : "not an executable file"));
}

/// Runs mpirun and passes the ranks' reports to the monitor.
int run_and_follow(const std::vector<std::string>& words, const Environment& environment,
                   const std::string& key, JobMonitor& monitor) {
  ReportFilter filter(key);
  const auto on_stderr = [&](std::string_view bytes) {
    write_to_stderr(filter.feed(bytes));
    for (const auto& report : filter.take_reports()) {
      for (const auto& line : monitor.take(report)) say(line);
    }
  };
  const auto on_signal = [&](int number) { monitor.take_signal(number); };
  const auto before_sleep = [&] {
    const auto now = JobMonitor::Clock::now();
    for (const auto& line : monitor.due_lines(now)) say(line);
    return ChildCare{.sleep = monitor.time_left(now), .kill = monitor.wants_kill(now)};
  };
  const auto status =
      run_child(words, to_strings(environment), {on_stderr, on_signal, before_sleep});
  write_to_stderr(filter.finish());
  for (const auto& line : monitor.closing_lines(status)) say(line);
  return monitor.exit_code(status);
}

std::vector<std::string> exportable_names(const Environment& environment) {
  std::vector<std::string> names;
  for (const auto& [name, value] : environment) {
    if (is_exportable(name)) names.push_back(name);
  }
  return names;
}

bool names_session_base(const std::vector<std::string>& flags) {
  return std::any_of(flags.begin(), flags.end(), [](const std::string& flag) {
    return flag.find("tmpdir_base") != std::string::npos;
  });
}

}  // namespace

std::string locate_mpirun(const Options& options) {
  const Environment environment = current_environment();
  MpirunPlaces places;
  places.option = options.mpirun;
  places.variable = value_of(environment, "BLUEFOG_MPIRUN");
  places.own_folder = own_folder();
  places.virtual_env = value_of(environment, "VIRTUAL_ENV");
  places.built_with = build_info().mpirun;
  places.search_path = value_of(environment, "PATH");
  return find_mpirun(places, is_program);
}

int run_job(const Options& options) {
  const Machines machines = choose_machines(options);
  check_interfaces(options, machines);
  Environment environment = current_environment();
  environment.erase("BLUEFOG_MPIRUN");  // ours alone

  MpirunCall call;
  call.extra_flags = split_shell_words(options.extra_mpi_flags, "--extra-mpi-flags");
  call.hosts = machines.hosts;
  call.other_hosts = machines.other_hosts;
  call.as_root = geteuid() == 0;
  call.no_input = stdin_is_null();
  call.bfrun = own_path();
  call.mpirun = locate_mpirun(options);
  const bool mpirun_binds = has_flag(call.extra_flags, "bind-to");
  const std::string key = draw_report_key();
  std::vector<std::string> warnings;
  add_job_variables(options, choose_master(options, machines), !mpirun_binds, key, environment,
                    warnings);
  for (const auto& warning : warnings) say(warning);
  if (machines.includes_this_host) check_command(options, environment);
  call.exported = exportable_names(environment);
  const SessionFolder session(environment);
  call.version = names_session_base(call.extra_flags) ? query_mpirun_version(call.mpirun)
                                                      : session.offer_to(call.mpirun, environment);
  const auto words = build_mpirun_command(options, call);

  MonitoredJob job;
  job.ranks = options.num_proc;
  job.fault_tolerant = options.fault_tolerant;
  job.announce_placement = machines.other_hosts;
  job.extra_mpi_flags = options.extra_mpi_flags;
  job.notes = make_notes(environment, mpirun_binds);
  if (!machines.other_hosts) {
    const BindPolicy policy = mpirun_binds ? BindPolicy::None : options.bind;
    const Placement placement = choose_placement_here(job.ranks, policy);
    check_crowd(options, placement.cores);
    say(describe(job.ranks, 1, placement, job.notes));
  }
  if (options.verbose) say(join_shell_words(words));
  JobMonitor monitor(job);
  return run_and_follow(words, environment, key, monitor);
}

}  // namespace bluefog::bfrun
