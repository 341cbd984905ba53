#include "tools/bfrun/start/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "tools/bfrun/numbers.hpp"

namespace bluefog::bfrun {
namespace {

/// What programs, libraries and MPI look for, and what bfrun itself sets. Keys and tokens of users
/// are in variables of other names.
constexpr std::array<std::string_view, 15> kExported{
    "PATH",        "HOME",        "USER",       "LOGNAME", "SHELL",
    "LANG",        "LANGUAGE",    "TZ",         "TMPDIR",  "VIRTUAL_ENV",
    "MASTER_ADDR", "MASTER_PORT", "MODULEPATH", "HF_HOME", "GLIBC_TUNABLES"};
constexpr std::array<std::string_view, 29> kExportedPrefixes{
    "BLUEFOG_",  "BFRUN_",  "LD_",       "LC_",     "PYTHON",  "CONDA_", "OMP_",     "MKL_",
    "KMP_",      "GOMP_",   "OPENBLAS_", "BLIS_",   "MALLOC_", "TORCH",  "PYTORCH_", "ATEN_",
    "CUDA_",     "CUBLAS_", "CUDNN_",    "NVIDIA_", "NCCL_",   "GLOO_",  "UCX_",     "FI_",
    "OMPI_MCA_", "OPAL_",   "HWLOC_",    "IBV_",    "MLX5_"};
/// Of one process of another launcher, although a prefix above fits.
constexpr std::string_view kOfOneTorchrun = "TORCHELASTIC_";

}  // namespace

bool is_started_by_bfrun(const Environment& environment) {
  return environment.contains(kStoreVariable);
}

void forget_other_launchers(bool also_those_of_mpi, Environment& environment) {
  constexpr std::array<std::string_view, 7> kOfOneProcess{
      "BFRUN_", "TORCHELASTIC_", "OMPI_COMM_", "PMIX_", "PMI_", "OMPI_COMMAND", "OMPI_ARGV"};
  constexpr std::size_t kNotOfMpi = 2;
  const auto forgotten =
      std::span(kOfOneProcess).first(also_those_of_mpi ? kOfOneProcess.size() : kNotOfMpi);
  std::erase_if(environment, [&](const auto& variable) {
    return std::ranges::any_of(
        forgotten, [&](std::string_view prefix) { return variable.first.starts_with(prefix); });
  });
}

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

Environment current_environment() {
  Environment variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      continue;
    }
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> to_strings(const Environment& environment) {
  std::vector<std::string> strings;
  for (const auto& [name, value] : environment) {
    strings.push_back(fmt::format("{}={}", name, value));
  }
  return strings;
}

bool is_exportable(const std::string& name) {
  if (!is_identifier(name) || name.starts_with(kOfOneTorchrun)) {
    return false;
  }
  return std::ranges::find(kExported, name) != kExported.end() ||
         std::ranges::any_of(kExportedPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> exportable_names(const Environment& environment,
                                          const std::vector<std::string>& named) {
  const auto is_named = [&](const std::string& name) {
    return std::ranges::any_of(
        named, [&](const std::string& entry) { return entry.substr(0, entry.find('=')) == name; });
  };
  std::vector<std::string> names;
  for (const auto& [name, value] : environment) {
    if (is_exportable(name) || is_named(name)) {
      names.push_back(name);
    }
  }
  return names;
}

void add_job_variables(const Options& options, const MasterAddress& master, bool bind_in_ranks,
                       const std::string& report_key, Environment& environment,
                       std::vector<std::string>& warnings) {
  for (const auto& entry : options.environment) {
    const auto equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (equals != std::string::npos) {
      environment[name] = entry.substr(equals + 1);
    } else if (!environment.contains(name)) {
      warnings.push_back(fmt::format("-x {}: not set here, so no rank gets it", name));
    }
  }
  if (!options.timeline_filename.empty()) {
    environment["BLUEFOG_TIMELINE"] = options.timeline_filename;
  }
  if (options.min_np > 0) {
    environment.emplace("BLUEFOG_ON_FAILURE", "shrink");
  }
  if (!options.network_interface.empty()) {
    environment.emplace("NCCL_SOCKET_IFNAME", options.network_interface);
    environment.emplace("GLOO_SOCKET_IFNAME", options.network_interface);
  }
  environment.emplace("MASTER_ADDR", master.address);
  environment.emplace("MASTER_PORT", std::to_string(master.port));
  environment[kReportKeyVariable] = report_key;
  environment[kBindVariable] = to_text(bind_in_ranks ? options.bind : BindPolicy::None);
}

void ignore_allocations(const OpenMpiVersion& version, Environment& environment) {
  const bool prrte = version.major >= 5;
  environment.emplace(
      prrte ? "PRTE_MCA_ras" : "OMPI_MCA_ras",
      prrte ? "^slurm,pbs,lsf,gridengine,flux" : "^slurm,tm,loadleveler,alps,lsf,gridengine");
  environment.emplace(prrte ? "PRTE_MCA_plm" : "OMPI_MCA_plm", prrte ? "ssh" : "rsh");
}

const char* to_text(BindPolicy policy) {
  switch (policy) {
    case BindPolicy::Auto:
      return "auto";
    case BindPolicy::Core:
      return "core";
    case BindPolicy::None:
      break;
  }
  return "none";
}

BindPolicy bind_policy_from(const std::string& text) {
  if (text == "auto") {
    return BindPolicy::Auto;
  }
  return text == "core" ? BindPolicy::Core : BindPolicy::None;
}

}  // namespace bluefog::bfrun
