#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bfrun/start/environment.hpp"
#include "tools/bfrun/start/hosts.hpp"

namespace bluefog::bfrun {

/// The hosts in Slurm's short form, `n[1-3,07],m2`, in their order; nothing when it is none.
[[nodiscard]] std::optional<std::vector<std::string>> expand_nodelist(std::string_view text);

/// The numbers in Slurm's short form, `2(x3),1` for 2, 2, 2, 1; nothing when it is none.
[[nodiscard]] std::optional<std::vector<int>> expand_counts(std::string_view text);

/// The hosts and slots of the Slurm job that `environment` describes (SLURM_JOB_NODELIST,
/// SLURM_TASKS_PER_NODE); nothing when it describes none that makes sense.
[[nodiscard]] std::optional<std::vector<HostSlots>> slurm_hosts(const Environment& environment);

}  // namespace bluefog::bfrun
