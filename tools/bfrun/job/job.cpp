#include "tools/bfrun/job/job.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "bluefog_cpp/store/store_address.hpp"
#include "tools/bfrun/build_info.hpp"
#include "tools/bfrun/job/ears.hpp"
#include "tools/bfrun/job/monitor/job_monitor.hpp"
#include "tools/bfrun/job/own/own_job.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/session_folder.hpp"
#include "tools/bfrun/job/signal_watch.hpp"
#include "tools/bfrun/numbers.hpp"
#include "tools/bfrun/shell_words.hpp"
#include "tools/bfrun/start/environment.hpp"
#include "tools/bfrun/start/hosts.hpp"
#include "tools/bfrun/start/machines.hpp"
#include "tools/bfrun/start/mpirun.hpp"
#include "tools/bfrun/start/mpirun_command.hpp"
#include "tools/bfrun/start/network.hpp"

namespace bluefog::bfrun {
namespace {

void check_interfaces(const Options& options, const Machines& machines) {
  if (!machines.includes_this_host) {
    return;
  }
  for (const auto& name : split_list(options.network_interface)) {
    if (name.find('/') == std::string::npos && !has_interface(name)) {
      throw UsageError(fmt::format("--network-interface: this host has no interface '{}'", name));
    }
  }
}

MasterAddress choose_master(const Options& options, const Machines& machines, int port) {
  MasterAddress master{"127.0.0.1", port};
  if (!machines.other_hosts) {
    return master;
  }
  const std::string& first = machines.hosts.front().name;
  if (!is_this_host(first, host_name())) {
    master.address = first;
    return master;
  }
  const auto interfaces = split_list(options.network_interface);
  const std::string address =
      interfaces.empty() ? std::string() : interface_address(interfaces.front());
  master.address = address.empty() ? first : address;
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
    if (notes.threads.empty() && !value.empty()) {
      notes.threads = fmt::format("{}={}", name, value);
    }
  }
  return notes;
}

void check_command(const Options& options, const Environment& environment) {
  const std::string& program = options.command.front();
  const int code = check_program(program, value_of(environment, "PATH"));
  if (code == 0) {
    return;
  }
  throw CommandError(
      code, fmt::format("cannot run '{}': {}", program,
                        code == kNotFoundCode ? "no such program" : "not an executable file"));
}

/// How long ranks wait before those that they wait for are named, as the ranks themselves have it.
std::chrono::milliseconds start_patience(const Environment& environment) {
  constexpr double kDefault = 60;
  constexpr double kLongest = 1e9;
  const double seconds =
      parse_number<double>(value_of(environment, "BLUEFOG_STALL_WARNING")).value_or(kDefault);
  const bool is_sensible = seconds >= 0 && seconds <= kLongest;
  return std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(is_sensible ? seconds : kDefault));
}

bool names_session_base(const std::vector<std::string>& flags) {
  return std::any_of(flags.begin(), flags.end(), [](const std::string& flag) {
    return flag.find("tmpdir_base") != std::string::npos;
  });
}

/// Whether the user asks mpirun to go on when ranks fail.
bool go_on_after_failure(const std::vector<std::string>& flags) {
  return std::ranges::any_of(flags, [](const std::string& flag) {
    return std::ranges::any_of(
        std::to_array<std::string_view>(
            {"recover", "continuous", "non_zero", "nonzero", "with-ft"}),
        [&](std::string_view word) { return flag.find(word) != std::string::npos; });
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

namespace {

/// The first option or variable that only mpirun can follow; empty where there is none.
std::string asks_for_mpirun(const Options& options, const Environment& environment) {
  if (!options.mpirun.empty()) {
    return "--mpirun";
  }
  if (!options.extra_mpi_flags.empty()) {
    return "--extra-mpi-flags";
  }
  if (!options.prefix.empty()) {
    return "--prefix";
  }
  if (!value_of(environment, "BLUEFOG_MPIRUN").empty()) {
    return "BLUEFOG_MPIRUN";
  }
  return value_of(environment, "BLUEFOG_TRANSPORT") == "mpi" ? "BLUEFOG_TRANSPORT=mpi" : "";
}

bool starts_ranks_itself(const Options& options, const Machines& machines,
                         const Environment& environment) {
  const std::string wish = asks_for_mpirun(options, environment);
  if (options.min_np > 0 &&
      (options.launcher == Launcher::Mpirun || machines.other_hosts || !wish.empty())) {
    throw UsageError(fmt::format(
        "{} for ranks that bfrun starts itself, on this machine, found {}: mpirun's ranks cannot go "
        "on without one of them",
        options.is_elastic()  ? "--max-np and --host-discovery are"
        : options.respawn > 0 ? "--min-np and --respawn are"
                              : "--min-np is",
        !wish.empty()          ? wish
        : machines.other_hosts ? "host '" + machines.hosts.front().name + "'"
                               : "--launcher mpirun"));
  }
  if (options.launcher != Launcher::Own) {
    return options.launcher == Launcher::Auto && !machines.other_hosts && wish.empty() &&
           !options.fault_tolerant;
  }
  if (machines.other_hosts) {
    throw UsageError(
        fmt::format("--launcher own starts ranks on this machine alone, found host '{}'; leave it "
                    "out, or say --launcher mpirun",
                    machines.hosts.front().name));
  }
  if (!wish.empty()) {
    throw UsageError(fmt::format(
        "--launcher own starts no mpirun, and {} is for mpirun: give one of them", wish));
  }
  return true;
}

int run_job_of_mpirun(const Options& options, JobPlan plan) {
  Environment& environment = plan.environment;
  const Machines& machines = plan.machines;
  MpirunCall call;
  call.extra_flags = split_shell_words(options.extra_mpi_flags, "--extra-mpi-flags");
  call.hosts = machines.hosts;
  call.other_hosts = machines.other_hosts;
  call.as_root = geteuid() == 0;
  call.no_input = stdin_is_null();
  call.bfrun = own_path();
  call.mpirun = locate_mpirun(options);
  if (machines.other_hosts && share_first_label(machines.hosts, host_name())) {
    environment.emplace("PRTE_MCA_prte_keep_fqdn_hostnames", "1");
  }
  Ears ears(plan.key, options.num_proc);
  if (machines.other_hosts) {
    ears.hear_hosts(reachable_addresses(split_list(options.network_interface)),
                    store::draw_secret(), plan.job.host_silence);
    environment[kHostLineVariable] = ears.host_place();
  }
  call.exported = exportable_names(environment, options.environment);
  environment[kRankLineVariable] = ears.rank_place();  // for this machine alone
  std::optional<SessionFolder> session;
  if (names_session_base(call.extra_flags) || SessionFolder::is_chosen(environment)) {
    call.version = query_mpirun_version(call.mpirun);
  } else {
    call.version = session.emplace(environment).offer_to(call.mpirun, environment);
    environment[kSessionVariable] = session->path();
  }
  if (!machines.by_slurm) {
    ignore_allocations(call.version, environment);
  }
  const auto words = build_mpirun_command(options, call);
  plan.job.goes_on_after_failure = go_on_after_failure(call.extra_flags);
  if (!machines.other_hosts) {
    print_placement(options, plan);
  }
  if (options.verbose) {
    say(join_shell_words(words));
  }
  JobMonitor monitor(plan.job);
  return run_and_follow(
      [&](const ChildEvents& events) { return run_child(words, to_strings(environment), events); },
      plan.key, ears, monitor);
}

}  // namespace

int run_job(const Options& options) {
  const SignalWatch signals;  // from here on, a signal leaves nothing behind
  JobPlan plan;
  plan.environment = current_environment();
  plan.machines = choose_machines(options, plan.environment);
  check_interfaces(options, plan.machines);
  const bool by_itself = starts_ranks_itself(options, plan.machines, plan.environment);
  // Both of these are checked before the command is.
  const auto flags = split_shell_words(options.extra_mpi_flags, "--extra-mpi-flags");
  if (!by_itself) {
    static_cast<void>(locate_mpirun(options));
  }
  plan.environment.erase("BLUEFOG_MPIRUN");  // ours alone
  plan.mpirun_binds = has_flag(flags, "bind-to");
  plan.key = draw_report_key();
  forget_other_launchers(by_itself, plan.environment);
  std::vector<std::string> warnings;
  const ReservedPort port;  // jobs that start at the same time have others
  add_job_variables(options, choose_master(options, plan.machines, port.number()),
                    !plan.mpirun_binds, plan.key, plan.environment, warnings);
  for (const auto& warning : warnings) {
    say(warning);
  }
  if (plan.machines.includes_this_host) {
    check_command(options, plan.environment);
  }
  plan.job.ranks = options.num_proc;
  plan.job.fault_tolerant = options.fault_tolerant;
  plan.job.enough = options.min_np;
  plan.job.respawns = options.respawn;
  plan.job.has_other_hosts = plan.machines.other_hosts;
  plan.job.host_silence = std::chrono::seconds(options.host_silence);
  plan.job.start_patience = start_patience(plan.environment);
  plan.job.extra_mpi_flags = options.extra_mpi_flags;
  plan.job.notes = make_notes(plan.environment, plan.mpirun_binds);
  return by_itself ? run_own_job(options, std::move(plan))
                   : run_job_of_mpirun(options, std::move(plan));
}

}  // namespace bluefog::bfrun
