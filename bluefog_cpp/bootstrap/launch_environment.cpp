#include "bluefog_cpp/bootstrap/launch_environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

using Variables = std::map<std::string, std::string>;

// Value of a count such as PMI_SIZE, or 0 if it is unset or not a count.
int count_in(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  int count = 0;
  if (found != variables.end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), count);
  }
  return count > 0 ? count : 0;
}

// Whether a variable says where the PMIx server is: "job.0;tcp4://127.0.0.1:5234", or a path.
bool names_pmix_server(const Variables& variables) {
  return std::ranges::any_of(variables, [](const auto& variable) {
    return variable.first.starts_with("PMIX_SERVER_URI") &&
           variable.second.find('/') != std::string::npos;
  });
}

}  // namespace

LaunchEnvironment LaunchEnvironment::detect(const Variables& variables) {
  const auto has = [&variables](const char* name) { return variables.contains(name); };
  // Inside a batch script, before any srun, the step has one task.
  const int slurm_tasks = has("SLURM_PROCID") ? count_in(variables, "SLURM_STEP_NUM_TASKS") : 0;
  const bool under_open_mpi = has("OMPI_COMM_WORLD_SIZE") && has("OMPI_COMM_WORLD_RANK");
  // Open MPI would start as a single process, and crash when it ends.
  if (has("PMIX_NAMESPACE") && (has("PMIX_RANK") || under_open_mpi) &&
      !names_pmix_server(variables)) {
    throw UnsupportedError(
        "PMIX_NAMESPACE and PMIX_RANK say that a launcher started this process: expected a "
        "PMIX_SERVER_URI… with the address of its server too, found none; unset both to run as a "
        "single process, or start it with bfrun, mpirun or srun --mpi=pmix");
  }
  if (under_open_mpi) {
    return {"Open MPI", count_in(variables, "OMPI_COMM_WORLD_SIZE")};
  }
  if (has("PMIX_RANK") && has("PMIX_NAMESPACE")) {
    return {"PMIx", slurm_tasks};
  }
  if (has("PMI_RANK") && (has("PMI_SIZE") || has("PMI_FD"))) {
    return {"PMI", count_in(variables, "PMI_SIZE")};
  }
  if (slurm_tasks > 1) {
    throw UnsupportedError(
        fmt::format("Slurm started {} tasks without a way to find each other: expected PMIX_RANK "
                    "or PMI_RANK in the environment; start them with srun --mpi=pmix",
                    slurm_tasks));
  }
  return {};
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
