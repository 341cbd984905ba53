#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bluefog::bfrun {

/// How ranks are bound to cores: `Auto` binds when they fit evenly, `Core` always, `None` never.
enum class BindPolicy { Auto, Core, None };

/// One physical core, with the hardware threads that the process may use.
struct Core {
  int package = 0;
  std::vector<int> cpus;

  bool operator==(const Core&) const = default;
};

/// The cores and threads of the ranks of one host.
struct Placement {
  int cores = 1;           ///< cores of the host that the job may use
  int cores_per_rank = 0;  ///< 0 when not bound
  int threads = 1;         ///< threads for each rank

  [[nodiscard]] bool bound() const { return cores_per_rank > 0; }
  bool operator==(const Placement&) const = default;
};

/// The cores behind the hardware threads `cpus`, by package, then by lowest thread. `cpu_root` is
/// `/sys/devices/system/cpu`; a thread that it does not describe is a core of its own.
[[nodiscard]] std::vector<Core> group_into_cores(const std::vector<int>& cpus,
                                                 const std::string& cpu_root);

/// The CPU quota of the control groups of this process in whole cores, rounded up; 0 when none.
/// `membership` is the text of `/proc/self/cgroup`, `cgroup_root` is `/sys/fs/cgroup`.
[[nodiscard]] int cgroup_quota_cores(std::string_view membership, const std::string& cgroup_root);

/// Hardware threads that the calling process may run on (`sched_getaffinity`).
[[nodiscard]] std::vector<int> allowed_cpus();

/// Chooses for `local_ranks` ranks on a host with `cores` usable cores, `quota` of them granted
/// (0: all).
///
/// Threads are max(1, min(cores, quota) / local_ranks). `Auto` binds when the cores divide evenly
/// among at least two ranks and no quota is tighter than the cores; `Core` binds whenever there
/// is a core for each rank. @throws UsageError for `Core` with more ranks than cores.
[[nodiscard]] Placement choose_placement(int cores, int quota, int local_ranks, BindPolicy policy);

/// choose_placement for this machine.
[[nodiscard]] Placement choose_placement_here(int local_ranks, BindPolicy policy);

/// The hardware threads of the share of `local_rank`: consecutive cores, empty when not bound.
[[nodiscard]] std::vector<int> share_of(const std::vector<Core>& cores, const Placement& placement,
                                        int local_rank);

/// share_of on this machine, with the cores that the calling process may use.
[[nodiscard]] std::vector<int> share_here(const Placement& placement, int local_rank);

/// Lets the calling process run on `cpus` only; an empty list changes nothing.
/// Returns whether the kernel agreed.
bool bind_this_process(const std::vector<int>& cpus);

/// The words in a placement's description that the placement itself does not know.
struct PlacementNotes {
  std::string threads;        ///< the user's own setting, such as `OMP_NUM_THREADS=4`, or empty
  bool mpirun_binds = false;  ///< the user gave mpirun a binding of their own
};

/// One line about the placement, such as
/// `2 ranks on 1 host, 1 core each (bound), 1 thread per rank`.
[[nodiscard]] std::string describe(int ranks, int hosts, const Placement& placement,
                                   const PlacementNotes& notes);

}  // namespace bluefog::bfrun
