#include "tools/bfrun/rank/binding.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

constexpr const char* kCpuRoot = "/sys/devices/system/cpu";
constexpr const char* kCgroupRoot = "/sys/fs/cgroup";

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<int> read_int(const std::string& path) {
  std::ifstream file(path);
  int value = 0;
  if (!(file >> value)) {
    return std::nullopt;
  }
  return value;
}

/// Cores of one group: `cpu.max` (version 2) or `cpu.cfs_quota_us` (version 1).
std::optional<double> quota_of_group(const std::string& folder) {
  double quota = 0;
  double period = 0;
  std::istringstream max(read_text(folder + "/cpu.max"));
  if (max >> quota >> period && quota > 0 && period > 0) {
    return quota / period;
  }
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) {
    return quota / period;
  }
  return std::nullopt;
}

/// The tightest quota from the group `path` up to the root of its hierarchy. A container often
/// sees its own group as the root, so the root is looked at too.
std::optional<double> tightest_quota(const std::string& hierarchy, std::string path) {
  std::optional<double> tightest;
  while (true) {
    const auto quota = quota_of_group(hierarchy + path);
    if (quota && (!tightest || *quota < *tightest)) {
      tightest = quota;
    }
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) {
      return tightest;
    }
    path.erase(slash);
  }
}

const char* plural(int count) { return count == 1 ? "" : "s"; }

}  // namespace

std::vector<Core> group_into_cores(const std::vector<int>& cpus, const std::string& cpu_root) {
  std::map<std::pair<int, int>, Core> by_id;
  for (const int cpu : cpus) {
    const std::string folder = fmt::format("{}/cpu{}/topology/", cpu_root, cpu);
    const int package = std::max(0, read_int(folder + "physical_package_id").value_or(0));
    // Each hardware thread counts as a core of its own if it has no core id.
    const int id = read_int(folder + "core_id").value_or(-1 - cpu);
    Core& core = by_id[{package, id}];
    core.package = package;
    core.cpus.push_back(cpu);
  }
  std::vector<Core> cores;
  for (auto& [id, core] : by_id) {
    std::sort(core.cpus.begin(), core.cpus.end());
    cores.push_back(std::move(core));
  }
  std::sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) {
    return std::pair(a.package, a.cpus.front()) < std::pair(b.package, b.cpus.front());
  });
  return cores;
}

int cgroup_quota_cores(std::string_view membership, const std::string& cgroup_root) {
  std::optional<double> tightest;
  std::istringstream lines{std::string(membership)};
  std::string line;
  while (std::getline(lines, line)) {  // number:controllers:path
    const auto first = line.find(':');
    const auto second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && controllers != "cpu" && controllers.find("cpu,") == std::string::npos) {
      continue;
    }
    std::string path = line.substr(second + 1);
    if (path == "/") {
      path.clear();
    }
    const auto quota =
        tightest_quota(cgroup_root + (version_2 ? "" : "/" + controllers), std::move(path));
    if (quota && (!tightest || *quota < *tightest)) {
      tightest = quota;
    }
  }
  return tightest ? std::max(1, static_cast<int>(std::ceil(*tightest))) : 0;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int capacity = 1024; capacity <= (1 << 20); capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) {
        cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (known) {
      return cpus;
    }
  }
  for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); ++cpu) {
    cpus.push_back(cpu);
  }
  return cpus;
}

Placement choose_placement(int cores, int quota, int local_ranks, BindPolicy policy) {
  const bool limited = quota > 0 && quota < cores;
  Placement placement;
  placement.cores = limited ? quota : cores;
  placement.threads = std::max(1, placement.cores / local_ranks);
  if (policy == BindPolicy::Core && local_ranks > cores) {
    throw UsageError(fmt::format("--bind-to core wants a core for each rank: {} ranks, {} core{}",
                                 local_ranks, cores, plural(cores)));
  }
  const bool even = local_ranks > 1 && cores % local_ranks == 0 && !limited;
  if (policy == BindPolicy::Core || (policy == BindPolicy::Auto && even)) {
    placement.cores_per_rank = cores / local_ranks;
  }
  return placement;
}

Placement choose_placement_here(int local_ranks, BindPolicy policy) {
  const auto cores = static_cast<int>(group_into_cores(allowed_cpus(), kCpuRoot).size());
  const int quota = cgroup_quota_cores(read_text("/proc/self/cgroup"), kCgroupRoot);
  return choose_placement(cores, quota, local_ranks, policy);
}

std::vector<int> share_of(const std::vector<Core>& cores, const Placement& placement,
                          int local_rank) {
  std::vector<int> cpus;
  const auto per_rank = static_cast<std::size_t>(placement.cores_per_rank);
  const std::size_t begin = per_rank * static_cast<std::size_t>(local_rank);
  for (std::size_t i = begin; i < begin + per_rank && i < cores.size(); ++i) {
    cpus.insert(cpus.end(), cores[i].cpus.begin(), cores[i].cpus.end());
  }
  return cpus;
}

std::vector<int> share_here(const Placement& placement, int local_rank) {
  if (!placement.bound()) {
    return {};
  }
  return share_of(group_into_cores(allowed_cpus(), kCpuRoot), placement, local_rank);
}

bool bind_this_process(const std::vector<int>& cpus) {
  if (cpus.empty()) {
    return true;
  }
  const int capacity = *std::max_element(cpus.begin(), cpus.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(capacity);
  const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) {
    CPU_SET_S(cpu, bytes, set);
  }
  const bool agreed = sched_setaffinity(0, bytes, set) == 0;
  CPU_FREE(set);
  return agreed;
}

std::string describe(int ranks, int hosts, const Placement& placement,
                     const PlacementNotes& notes) {
  std::string binding =
      fmt::format("not bound ({} core{})", placement.cores, plural(placement.cores));
  if (notes.mpirun_binds) {
    binding = "bound by mpirun as its flags say";
  } else if (placement.bound()) {
    binding = fmt::format("{} core{} each (bound)", placement.cores_per_rank,
                          plural(placement.cores_per_rank));
  }
  const std::string threads =
      notes.threads.empty()
          ? fmt::format("{} thread{} per rank", placement.threads, plural(placement.threads))
          : notes.threads + " as set";
  return fmt::format("{} rank{} on {} host{}, {}, {}", ranks, plural(ranks), hosts, plural(hosts),
                     binding, threads);
}

}  // namespace bluefog::bfrun
