#include "tools/bfrun/start/mpirun_command.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace bluefog::bfrun {
namespace {

/// Runs bfrun as the watcher where it is installed. A host that lacks it gets the program with
/// the variables, and reports of its start and end as RankReport has them: no binding, no thread
/// count, and nothing ends what it leaves behind.
constexpr const char* kWatchIfInstalled =
    R"sh(if [ -x "$0" ]; then exec "$0" --exec-rank -- "$@"; fi
key="$BFRUN_REPORT_KEY" told=0
unset BFRUN_REPORT_KEY BFRUN_BIND BFRUN_LINE BFRUN_HOST_LINE BFRUN_SESSION
export RANK="$OMPI_COMM_WORLD_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE"
export LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK" LOCAL_WORLD_SIZE="$OMPI_COMM_WORLD_LOCAL_SIZE"
report() {
  printf '\036bfrun:%s:%s %d %d %d %d 0 0 0 %d %d %d %d000000 %s\036\n' "$key" "$1" "$RANK" \
    "$LOCAL_RANK" "$LOCAL_WORLD_SIZE" $$ "$2" "$3" "$told" "$(date +%s)" "$(uname -n)" >&2
}
report start 0 0
trap told=1 TERM INT HUP QUIT
"$@"
code=$?
if [ $code -gt 128 ] && [ $code -le 192 ]; then report end 0 $((code - 128)); else report end $code 0; fi
exit $code)sh";

std::string host_argument(const std::vector<HostSlots>& hosts) {
  std::string list;
  for (const auto& host : hosts) {
    const bool is_ipv6 = host.name.find(':') != std::string::npos;
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",",
                        is_ipv6 ? "[" + host.name + "]" : host.name, host.slots);
  }
  return list;
}

class Words {
 public:
  template <typename... Parts>
  void add(Parts&&... parts) {
    (words_.emplace_back(std::forward<Parts>(parts)), ...);
  }
  void add_all(const std::vector<std::string>& more) {
    words_.insert(words_.end(), more.begin(), more.end());
  }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

void add_mapping(const Options& options, const MpirunCall& call, Words& words) {
  words.add("-np", std::to_string(options.num_proc), "--host", host_argument(call.hosts));
  if (!has_flag(call.extra_flags, "map-by") && !has_flag(call.extra_flags, "rankfile")) {
    words.add("--map-by", "slot:OVERSUBSCRIBE");
  }
  if (!has_flag(call.extra_flags, "bind-to")) {
    words.add("--bind-to", "none");
  }
}

void add_network(const Options& options, const MpirunCall& call, Words& words) {
  const bool prrte = call.version.major >= 5;
  if (options.ssh_port != 0) {
    words.add(prrte ? "--prtemca" : "--mca", prrte ? "plm_ssh_args" : "plm_rsh_args",
              fmt::format("-p {}", options.ssh_port));
  }
  if (options.network_interface.empty()) {
    return;
  }
  words.add("--mca", "btl_tcp_if_include", options.network_interface);
  if (call.other_hosts) {
    words.add(prrte ? "--prtemca" : "--mca", prrte ? "prte_if_include" : "oob_tcp_if_include",
              options.network_interface);
  }
}

}  // namespace

std::vector<std::string> build_mpirun_command(const Options& options, const MpirunCall& call) {
  if (options.fault_tolerant && call.version.major < 5) {
    throw UsageError(fmt::format("--fault-tolerant wants Open MPI 5 or newer, found {}.{}.{}",
                                 call.version.major, call.version.minor, call.version.release));
  }
  Words words;
  words.add(call.mpirun);
  if (call.as_root) {
    words.add("--allow-run-as-root");
  }
  if (options.fault_tolerant) {
    words.add("--with-ft", "ulfm");
  }
  if (!options.prefix.empty()) {
    words.add("--prefix", options.prefix);
  }
  if (call.no_input && !has_flag(call.extra_flags, "stdin")) {
    words.add("--stdin", "none");
  }
  add_mapping(options, call, words);
  add_network(options, call, words);
  if (call.other_hosts) {
    for (const auto& name : call.exported) {
      words.add("-x", name);
    }
  }
  words.add_all(call.extra_flags);
  if (call.other_hosts) {
    words.add("/bin/sh", "-c", kWatchIfInstalled, call.bfrun);
  } else {
    words.add(call.bfrun, "--exec-rank", "--");
  }
  words.add_all(options.command);
  return words.take();
}

bool has_flag(const std::vector<std::string>& flags, const std::string& name) {
  return std::any_of(flags.begin(), flags.end(), [&](const std::string& flag) {
    const auto dashes = std::min(flag.find_first_not_of('-'), flag.size());
    if (dashes == 0 || dashes > 2) {
      return false;
    }
    return flag.substr(dashes, flag.find('=') - dashes) == name;
  });
}

}  // namespace bluefog::bfrun
