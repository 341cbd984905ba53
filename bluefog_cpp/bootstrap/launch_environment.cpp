#include "bluefog_cpp/bootstrap/launch_environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "bluefog_cpp/bootstrap/launch_variables.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/store_address.hpp"

namespace bluefog {

namespace {

using Variables = LaunchVariables;
using Naming = LaunchNaming;

constexpr const char* kBfrunStore = "BFRUN_STORE";
constexpr const char* kBfrunSecret = "BFRUN_STORE_SECRET";
constexpr const char* kTorchrun = "TORCHELASTIC_RUN_ID";
constexpr const char* kExpectSize = "BLUEFOG_EXPECT_SIZE";

constexpr Naming kByBfrun{"bfrun", "BFRUN_RANK", "BFRUN_SIZE"};
constexpr Naming kByEnvironment{"MASTER_ADDR and MASTER_PORT", "RANK", "WORLD_SIZE"};
constexpr Naming kByTorchrun{"torchrun", "RANK", "WORLD_SIZE"};
constexpr Naming kByOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr Naming kByPmix{"PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"};
constexpr Naming kByPmi{"PMI", "PMI_RANK", "PMI_SIZE"};
constexpr Naming kBySlurm{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};
// Launchers whose ranks cannot be joined here, at least by these variables alone. PALS may leave
// the size out.
constexpr std::array kOthers{kByBfrun,
                             kByOpenMpi,
                             kByPmi,
                             Naming{"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                             Naming{"MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"},
                             Naming{"HPE MPT", "MPT_MPI_RANK", "MPT_MPI_SIZE"},
                             Naming{"PALS", "PALS_RANKID", "PALS_SIZE"},
                             Naming{"horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"},
                             Naming{"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                             Naming{"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"}};

LaunchEnvironment launch_by(const Naming& naming, const Variables& variables) {
  LaunchEnvironment launch;
  launch.way = LaunchWay::Mpi;
  launch.launcher = naming.launcher;
  launch.size = std::max(number_in(variables, naming.size), 0);
  launch.rank = number_in(variables, naming.rank);
  launch.stated_by = quote(variables, {naming.rank, naming.size});
  return launch;
}

// The first host of "n[03-05,9],m1", "rack[1-2]n[1-4].cluster" or "n1,n2".
std::string first_slurm_host(const std::string& nodes) {
  std::string host;
  std::size_t at = 0;
  while (at < nodes.size() && nodes[at] != ',') {
    if (nodes[at] != '[') {
      host += nodes[at++];
      continue;
    }
    const std::size_t stop = std::min(nodes.find_first_of(",-]", at), nodes.size());
    host += nodes.substr(at + 1, stop - at - 1);
    at = std::min(nodes.find(']', at), nodes.size() - 1) + 1;
  }
  return host;
}

// Whether a variable says where the PMIx server is: "job.0;tcp4://127.0.0.1:5234", or a path.
bool names_pmix_server(const Variables& variables) {
  return std::ranges::any_of(variables, [](const auto& variable) {
    return variable.first.starts_with("PMIX_SERVER_URI") &&
           variable.second.find('/') != std::string::npos;
  });
}

std::string hash_of(const std::string& text) {
  return text.empty() ? text : fmt::format("{:016x}", std::hash<std::string>{}(text));
}

// Names of jobs repeat, in containers that share a network for instance; the places of their PMIx
// servers do not.
std::string job_of(const Variables& variables) {
  std::string job;
  for (const auto& [name, value] : variables) {
    const bool names_job = name == "PMIX_NAMESPACE" || name.starts_with("PMIX_SERVER_URI") ||
                           name == "PMI_JOBID" || name == "SLURM_JOB_ID" || name == "SLURM_STEP_ID";
    if (names_job && !value.empty()) {
      job += fmt::format("{}={};", name, value);
    }
  }
  return hash_of(job);
}

// The launch that MPI can join; none where no launcher started this process.
LaunchEnvironment launch_of_mpi(const Variables& variables) {
  const auto has = [&variables](const char* name) { return variables.contains(name); };
  const bool under_open_mpi = has(kByOpenMpi.size) && has(kByOpenMpi.rank);
  // Open MPI would start as a single process, and crash when it ends.
  if (has("PMIX_NAMESPACE") && (has("PMIX_RANK") || under_open_mpi) &&
      !names_pmix_server(variables)) {
    throw UnsupportedError(fmt::format(
        "PMIX_NAMESPACE and PMIX_RANK say that a launcher started this process: expected a "
        "PMIX_SERVER_URI... with the address of its server too, found none; unset both to run as a "
        "single process, or start it with {}",
        kWaysToStart));
  }
  LaunchEnvironment launch;
  if (under_open_mpi) {
    check_place(kByOpenMpi, variables, LaunchNeeds::Both);
    launch = launch_by(kByOpenMpi, variables);
    launch.local_size = std::max(number_in(variables, "OMPI_COMM_WORLD_LOCAL_SIZE"), 0);
  } else if (has("PMIX_RANK") && has("PMIX_NAMESPACE")) {
    launch = launch_by(kByPmix, variables);
    // Inside a batch script, before any srun, the step has one task.
    launch.size = has("SLURM_PROCID") ? launch.size : 0;
  } else if (has("PMI_RANK") && has("PMI_FD")) {
    launch = launch_by(kByPmi, variables);  // the server at PMI_FD tells the size
  } else if (has("PMI_RANK") && has("PMI_SIZE")) {
    check_place(kByPmi, variables, LaunchNeeds::Both);
    launch = launch_by(kByPmi, variables);
  }
  launch.job = job_of(variables);
  return launch;
}

// A launch by a rank and a size; of no way where they are not set.
LaunchEnvironment launch_by_rank(const Naming& naming, LaunchWay way, const Variables& variables) {
  check_place(naming, variables, LaunchNeeds::Both);
  LaunchEnvironment launch = launch_by(naming, variables);
  const bool is_set = launch.rank >= 0 && launch.size > 0;
  launch.way = is_set ? way : LaunchWay::Single;
  launch.launcher = is_set ? naming.launcher : "";
  launch.local_size = std::max(number_in(variables, "LOCAL_WORLD_SIZE"), 0);
  return launch;
}

// "HOST:PORT" of the two variables; empty where one of them is missing.
std::string master_of(const Variables& variables) {
  const std::string host = value_of(variables, "MASTER_ADDR");
  const std::string port = value_of(variables, "MASTER_PORT");
  if (host.empty() || port.empty()) {
    return {};
  }
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return store::parse_store_address(
             "MASTER_ADDR:MASTER_PORT",
             is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port))
      .text();
}

LaunchEnvironment launch_of_bfrun(const Variables& variables) {
  if (!variables.contains(kBfrunStore)) {
    return {};
  }
  LaunchEnvironment launch = launch_by_rank(kByBfrun, LaunchWay::Bfrun, variables);
  launch.store = store::parse_store_address(kBfrunStore, value_of(variables, kBfrunStore)).text();
  launch.secret = value_of(variables, kBfrunSecret);
  launch.prefix = "bluefog_cpp";
  launch.is_store_served = true;
  launch.job = hash_of(launch.store + launch.secret);
  return launch;
}

LaunchEnvironment launch_of_torchrun(const Variables& variables) {
  if (!variables.contains(kTorchrun)) {
    return {};
  }
  LaunchEnvironment launch = launch_by_rank(kByTorchrun, LaunchWay::Torchrun, variables);
  launch.store = master_of(variables);
  const std::string run = hash_of(value_of(variables, kTorchrun) + "/");
  const int restarts = std::max(number_in(variables, "TORCHELASTIC_RESTART_COUNT"), 0);
  // Each agent counts those that it has asked for itself.
  launch.has_attempts = number_in(variables, "GROUP_WORLD_SIZE") > 1;
  launch.prefix = launch.has_attempts ? fmt::format("bluefog_cpp/{}", run)
                                      : fmt::format("bluefog_cpp/{}/{}", run, restarts);
  launch.is_store_served = value_of(variables, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  launch.job = hash_of(fmt::format("{}{}/{}", launch.store, launch.prefix, restarts));
  return launch;
}

LaunchEnvironment launch_of_environment(const Variables& variables) {
  if (value_of(variables, "MASTER_ADDR").empty() || value_of(variables, "MASTER_PORT").empty()) {
    return {};
  }
  LaunchEnvironment launch = launch_by_rank(kByEnvironment, LaunchWay::Environment, variables);
  launch.store = launch.launched() ? master_of(variables) : "";
  launch.prefix = "bluefog_cpp";
  launch.job = hash_of(launch.store);
  return launch;
}

// Its server's port follows from the names of job and step.
LaunchEnvironment launch_of_slurm(const Variables& variables) {
  constexpr std::size_t kFirstPort = 20000;
  constexpr std::size_t kPorts = 10000;
  check_place(kBySlurm, variables, LaunchNeeds::Sense);
  if (!variables.contains(kBySlurm.rank) || number_in(variables, kBySlurm.size) < 2) {
    return {};
  }
  LaunchEnvironment launch = launch_by(kBySlurm, variables);
  launch.way = LaunchWay::Slurm;
  const std::string nodes = value_of(variables, "SLURM_STEP_NODELIST");
  const std::string job = fmt::format("{}.{}", value_of(variables, "SLURM_JOB_ID"),
                                      value_of(variables, "SLURM_STEP_ID"));
  const bool is_one_host = nodes.find_first_of(",[") == std::string::npos;
  launch.store = fmt::format("{}:{}", is_one_host ? "127.0.0.1" : first_slurm_host(nodes),
                             kFirstPort + std::hash<std::string>{}(job) % kPorts);
  launch.secret = hash_of(job + nodes);
  launch.prefix = "bluefog_cpp";
  launch.job = job_of(variables);
  return launch;
}

// Launchers inside each other, whose variables name different ranks: each process would follow one.
void refuse_disagreement(const LaunchEnvironment& one, const LaunchEnvironment& other) {
  const bool both_know_sizes = one.size > 0 && other.size > 0;
  if (other.rank == one.rank && (!both_know_sizes || other.size == one.size)) {
    return;
  }
  throw UnsupportedError(
      fmt::format("{}, by {}, and {}, by {}: expected both to name the same rank and number of "
                  "ranks; start the ranks with one launcher alone: {}",
                  one.stated_by, one.launcher, other.stated_by, other.launcher, kWaysToStart));
}

// The first launch that can be joined; one that is none where there is none.
LaunchEnvironment choose(const std::array<LaunchEnvironment, 4>& candidates) {
  const LaunchEnvironment* first = nullptr;
  const LaunchEnvironment* chosen = nullptr;
  for (const LaunchEnvironment& candidate : candidates) {
    if (!candidate.launched()) {
      continue;
    }
    if (first != nullptr) {
      refuse_disagreement(*first, candidate);
    }
    first = first == nullptr ? &candidate : first;
    const bool is_joinable = candidate.way == LaunchWay::Mpi || !candidate.store.empty();
    chosen = chosen == nullptr && is_joinable ? &candidate : chosen;
  }
  return chosen == nullptr ? LaunchEnvironment{} : *chosen;
}

[[noreturn]] void refuse_several(const std::string& launcher, const std::string& stated_by,
                                 int size) {
  const bool is_one = stated_by.find(" and ") == std::string::npos;
  throw UnsupportedError(fmt::format(
      "{} {} that {} started {} processes: expected the variables of a launcher by which they find "
      "each other here (MASTER_ADDR and MASTER_PORT, for one), found none; start them with {}, or "
      "unset {} to run as a single process",
      stated_by, is_one ? "says" : "say", launcher, size > 1 ? fmt::format("{}", size) : "several",
      kWaysToStart, is_one ? "it" : "them"));
}

// A number of ranks without a place among them: a batch script that no srun stands in front of, or a
// shell in which it was left.
void refuse_alone(const Variables& variables, const char* name) {
  const int size = number_in(variables, name);
  if (size < 2 || number_in(variables, kExpectSize) == 1) {
    return;
  }
  throw UnsupportedError(
      fmt::format("{}={}: expected {} processes that a launcher started, found this one, which no "
                  "launcher started; start them with {}, or unset {}, or set {}=1, to run as a "
                  "single process",
                  name, size, size, kWaysToStart, name, kExpectSize));
}

// Fewer, or more, ranks have been started than were meant.
void refuse_another_size(const LaunchEnvironment& launch, const Variables& variables) {
  const int size = number_in(variables, kByEnvironment.size);
  if (size < 1 || launch.size < 1 || size == launch.size ||
      number_in(variables, kExpectSize) == launch.size) {
    return;
  }
  throw UnsupportedError(fmt::format(
      "WORLD_SIZE={}, and {}, by {}: expected as many ranks as WORLD_SIZE says, found {}; start {} "
      "ranks, or unset WORLD_SIZE, or set {}={}, where so many are meant",
      size, launch.stated_by, launch.launcher, launch.size, size, kExpectSize, launch.size));
}

// Each of these processes would take itself for rank 0 of 1.
void refuse_launchers_of_others(const Variables& variables) {
  if (!variables.contains("PMIX_NAMESPACE")) {
    check_place({"PMIx", "PMIX_RANK", "PMIX_NAMESPACE"}, variables, LaunchNeeds::Sense);
  }
  check_place(kByTorchrun, variables, LaunchNeeds::Sense);
  const LaunchEnvironment by_env = launch_by(kByTorchrun, variables);
  const bool by_torchrun = variables.contains(kTorchrun);
  if (by_env.size > 1 && (by_torchrun || variables.contains(kByTorchrun.rank))) {
    refuse_several(by_torchrun ? "torchrun" : "a launcher",
                   quote(variables, {kTorchrun, kByTorchrun.rank, kByTorchrun.size}), by_env.size);
  }
  for (const Naming& naming : kOthers) {
    const LaunchEnvironment launch = launch_by(naming, variables);
    if (launch.size > 1 || launch.rank > 0) {
      refuse_several(naming.launcher, launch.stated_by, launch.size);
    }
    check_place(naming, variables, LaunchNeeds::Sense);
  }
  refuse_alone(variables, kByTorchrun.size);
  if (!variables.contains(kBySlurm.size)) {
    refuse_alone(variables, "SLURM_NTASKS");
  }
}

Variables variables_of_process() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return variables;
}

}  // namespace

LaunchEnvironment LaunchEnvironment::detect(const Variables& environment) {
  Variables variables = environment;
  std::erase_if(variables, [](const auto& variable) { return variable.second.empty(); });
  const LaunchEnvironment chosen =
      choose({launch_of_bfrun(variables), launch_of_torchrun(variables), launch_of_mpi(variables),
              launch_of_environment(variables)});
  if (chosen.launched()) {
    refuse_another_size(chosen, variables);
    // A single rank of bfrun, too, meets those that are added later in its store.
    const bool may_grow =
        chosen.way == LaunchWay::Bfrun && value_of(variables, "BLUEFOG_ON_FAILURE") == "shrink";
    const bool is_alone = chosen.size == 1 && chosen.way != LaunchWay::Mpi && !may_grow;
    return is_alone ? LaunchEnvironment{} : chosen;
  }
  if (LaunchEnvironment slurm = launch_of_slurm(variables); slurm.launched()) {
    refuse_another_size(slurm, variables);
    return slurm;
  }
  refuse_launchers_of_others(variables);
  return LaunchEnvironment{.job = job_of(variables)};
}

void LaunchEnvironment::check_handed_place(int rank, int size, const Variables& variables) {
  const Naming by_env = variables.contains(kTorchrun) ? kByTorchrun : kByEnvironment;
  for (const Naming& naming : {kByBfrun, by_env, kByOpenMpi, kByPmi}) {
    const LaunchEnvironment launch = launch_by(naming, variables);
    const bool is_stated = launch.rank >= 0 && launch.size > 0;
    if (is_stated && (launch.rank != rank || launch.size != size)) {
      throw UnsupportedError(fmt::format(
          "rank {} of {}, by the program beside the store that it hands over, and {}, by {}: "
          "expected both to name the same rank and number of ranks; give the launcher's, or unset "
          "these variables",
          rank, size, launch.stated_by, launch.launcher));
    }
  }
}

void LaunchEnvironment::check_handed_place(int rank, int size) {
  check_handed_place(rank, size, variables_of_process());
}

LaunchEnvironment LaunchEnvironment::detect() { return detect(variables_of_process()); }

}  // namespace bluefog
