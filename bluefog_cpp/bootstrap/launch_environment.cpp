#include "bluefog_cpp/bootstrap/launch_environment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

using Variables = std::map<std::string, std::string>;

constexpr const char* kTorchrun = "TORCHELASTIC_RUN_ID";
constexpr std::string_view kWaysToStart = "bfrun, Open MPI's mpirun or srun --mpi=pmix";

// A launcher, and its variables for a process's rank and for the number of ranks.
struct Naming {
  const char* launcher;
  const char* rank;
  const char* size;
};

constexpr Naming kByTorchrun{"torchrun", "RANK", "WORLD_SIZE"};
constexpr Naming kByOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr Naming kByPmix{"PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"};
constexpr Naming kByPmi{"PMI", "PMI_RANK", "PMI_SIZE"};
// Launchers of libraries that cannot be joined here. PALS may leave the size out.
constexpr std::array kOthers{kByPmi,
                             Naming{"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                             Naming{"MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"},
                             Naming{"PALS", "PALS_RANKID", "PALS_SIZE"},
                             Naming{"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                             Naming{"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"}};

// The number in a variable such as PMI_SIZE, or −1 if it is unset or no number.
int number_in(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  if (found == variables.end()) {
    return -1;
  }
  const std::string& text = found->second;
  int number = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc{} && end == text.data() + text.size() ? std::max(number, -1) : -1;
}

// "RANK=0 and WORLD_SIZE=2", of those that are set.
std::string quote(const Variables& variables, std::initializer_list<const char*> names) {
  std::vector<std::string> words;
  for (const char* const name : names) {
    if (const auto found = variables.find(name); found != variables.end()) {
      words.push_back(fmt::format("{}={}", name, found->second));
    }
  }
  if (words.empty()) {
    return {};
  }
  const std::string last = std::move(words.back());
  words.pop_back();
  return words.empty() ? last : fmt::format("{} and {}", fmt::join(words, ", "), last);
}

LaunchEnvironment launch_by(const Naming& naming, const Variables& variables) {
  LaunchEnvironment launch;
  launch.launcher = naming.launcher;
  launch.size = std::max(number_in(variables, naming.size), 0);
  launch.rank = number_in(variables, naming.rank);
  launch.told_by = quote(variables, {naming.rank, naming.size});
  return launch;
}

// Whether a variable says where the PMIx server is: "job.0;tcp4://127.0.0.1:5234", or a path.
bool names_pmix_server(const Variables& variables) {
  return std::ranges::any_of(variables, [](const auto& variable) {
    return variable.first.starts_with("PMIX_SERVER_URI") &&
           variable.second.find('/') != std::string::npos;
  });
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
  return job.empty() ? job : fmt::format("{:016x}", std::hash<std::string>{}(job));
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
    launch = launch_by(kByOpenMpi, variables);
    launch.local_size = std::max(number_in(variables, "OMPI_COMM_WORLD_LOCAL_SIZE"), 0);
  } else if (has("PMIX_RANK") && has("PMIX_NAMESPACE")) {
    launch = launch_by(kByPmix, variables);
    // Inside a batch script, before any srun, the step has one task.
    launch.size = has("SLURM_PROCID") ? launch.size : 0;
  } else if (has("PMI_RANK") && (has("PMI_SIZE") || has("PMI_FD"))) {
    launch = launch_by(kByPmi, variables);
  }
  launch.job = job_of(variables);
  return launch;
}

// torchrun inside a rank of Open MPI's or PMIx's makes several processes of that one rank.
void refuse_disagreement(const LaunchEnvironment& mpi, const Variables& variables) {
  const LaunchEnvironment torchrun = launch_by(kByTorchrun, variables);
  if (!variables.contains(kTorchrun) || torchrun.size == 0 ||
      (torchrun.rank == mpi.rank && (mpi.size == 0 || torchrun.size == mpi.size))) {
    return;
  }
  throw UnsupportedError(
      fmt::format("{}, by torchrun, and {}, by {}: expected both to name the same rank and number "
                  "of ranks; start the ranks with {} alone",
                  torchrun.told_by, mpi.told_by, mpi.launcher, kWaysToStart));
}

[[noreturn]] void refuse_several(const std::string& launcher, const std::string& told_by,
                                 int size) {
  const bool is_one = told_by.find(" and ") == std::string::npos;
  throw UnsupportedError(fmt::format(
      "{} {} that {} started {} processes: expected the variables of a launcher by which they find "
      "each other here, found none; start them with {}, or unset {} to run as a single process",
      told_by, is_one ? "says" : "say", launcher, size > 1 ? fmt::format("{}", size) : "several",
      kWaysToStart, is_one ? "it" : "them"));
}

// Each of these processes would take itself for rank 0 of 1.
void refuse_launchers_of_others(const Variables& variables) {
  const LaunchEnvironment by_env = launch_by(kByTorchrun, variables);
  const bool by_torchrun = variables.contains(kTorchrun);
  // A number of ranks alone may be left in a shell.
  if (by_env.size > 1 && (by_torchrun || variables.contains(kByTorchrun.rank))) {
    refuse_several(by_torchrun ? "torchrun" : "a launcher",
                   quote(variables, {kTorchrun, kByTorchrun.rank, kByTorchrun.size}), by_env.size);
  }
  for (const Naming& naming : kOthers) {
    const LaunchEnvironment launch = launch_by(naming, variables);
    if (launch.size > 1 || launch.rank > 0) {
      refuse_several(naming.launcher, launch.told_by, launch.size);
    }
  }
  const int slurm_tasks =
      variables.contains("SLURM_PROCID") ? number_in(variables, "SLURM_STEP_NUM_TASKS") : 0;
  if (slurm_tasks > 1) {
    throw UnsupportedError(fmt::format(
        "Slurm started {} tasks without a way to find each other: expected PMIX_RANK in "
        "the environment; start them with srun --mpi=pmix",
        slurm_tasks));
  }
}

}  // namespace

LaunchEnvironment LaunchEnvironment::detect(const Variables& variables) {
  LaunchEnvironment launch = launch_of_mpi(variables);
  if (launch.launched()) {
    refuse_disagreement(launch, variables);
  } else {
    refuse_launchers_of_others(variables);
  }
  return launch;
}

LaunchEnvironment LaunchEnvironment::detect() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return detect(variables);
}

}  // namespace bluefog
