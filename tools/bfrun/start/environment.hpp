#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/bfrun/options.hpp"
#include "tools/bfrun/start/mpirun.hpp"

namespace bluefog::bfrun {

/// Variables by name.
using Environment = std::map<std::string, std::string>;

/// Variables by which bfrun talks to the watcher of each rank; the program does not see them.
inline constexpr const char* kReportKeyVariable = "BFRUN_REPORT_KEY";
inline constexpr const char* kBindVariable = "BFRUN_BIND";

/// Variables by which the ranks that bfrun starts itself find its store.
inline constexpr const char* kStoreVariable = "BFRUN_STORE";
inline constexpr const char* kStoreSecretVariable = "BFRUN_STORE_SECRET";
/// The rank, and the number of ranks, that bfrun itself gave: programs may change RANK.
inline constexpr const char* kOwnRankVariable = "BFRUN_RANK";
inline constexpr const char* kOwnSizeVariable = "BFRUN_SIZE";
/// Tells a rank that was started again to join the others, which are under way.
inline constexpr const char* kJoinVariable = "BLUEFOG_JOIN";

/// Whether bfrun itself, and no mpirun, starts the ranks with these variables.
[[nodiscard]] bool is_started_by_bfrun(const Environment& environment);

/// Removes what launchers around bfrun have set for one process, since ranks are none of theirs. An
/// mpirun does it for those of its own kind.
void forget_other_launchers(bool also_those_of_mpi, Environment& environment);

/// The value of a variable; empty where it is not set.
[[nodiscard]] std::string value_of(const Environment& environment, const std::string& name);

/// The environment of the calling process.
[[nodiscard]] Environment current_environment();

/// `NAME=VALUE` strings, as exec wants them.
[[nodiscard]] std::vector<std::string> to_strings(const Environment& environment);

/// Whether a variable goes to other hosts by itself: what programs and libraries look for there
/// (docs/bfrun.md lists them), so that keys and tokens stay.
[[nodiscard]] bool is_exportable(const std::string& name);

/// The names of all variables that go to other hosts: these, and those that -x has `named`, each
/// `VAR` or `VAR=VALUE`.
[[nodiscard]] std::vector<std::string> exportable_names(const Environment& environment,
                                                        const std::vector<std::string>& named);

/// The meeting point of the ranks of torch.distributed.
struct MasterAddress {
  std::string address;
  int port = 0;
};

/// Adds to `environment` what all ranks share: -x, BLUEFOG_TIMELINE, MASTER_ADDR and MASTER_PORT
/// (unless set already), the network interface for NCCL and gloo, and the variables for the watcher
/// of each rank.
///
/// `warnings` receives a sentence for each -x without a value whose variable is not set.
void add_job_variables(const Options& options, const MasterAddress& master, bool bind_in_ranks,
                       const std::string& report_key, Environment& environment,
                       std::vector<std::string>& warnings);

/// Has mpirun take hosts from its command line alone, and start its daemons by ssh, unless a
/// variable says otherwise. bfrun always names the hosts; the variables of Slurm, PBS or LSF may be
/// those of a job that has ended, or of one whose hosts are others.
void ignore_allocations(const OpenMpiVersion& version, Environment& environment);

/// The text that names `policy` in kBindVariable, and back; unknown text is `None`.
[[nodiscard]] const char* to_text(BindPolicy policy);
[[nodiscard]] BindPolicy bind_policy_from(const std::string& text);

}  // namespace bluefog::bfrun
