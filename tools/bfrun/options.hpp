#pragma once

#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tools/bfrun/rank/binding.hpp"

namespace bluefog::bfrun {

/// A command line or host list that bfrun cannot use; the process ends with code 2.
class UsageError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

/// A command that cannot be started; `code()` is the code that a shell would end with, 126 or 127.
class CommandError : public InvalidArgument {
 public:
  CommandError(int code, const std::string& message) : InvalidArgument(message), code_(code) {}

  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Who starts the ranks.
enum class Launcher {
  Auto,    ///< bfrun on this machine alone, unless an option or variable asks for mpirun
  Own,     ///< bfrun
  Mpirun,  ///< Open MPI's mpirun
};

/// The command line of bfrun, checked one option at a time.
struct Options {
  int num_proc = 0;      ///< `-np`: ranks in all, at least 1
  std::string hosts;     ///< `-H`: the list as written, empty when absent
  std::string hostfile;  ///< `--hostfile`: path, empty when absent
  /// `--host-silence`: seconds, 0 for ever
  int host_silence = 60;
  /// `--min-np`: ranks that suffice, 0 when absent
  int min_np = 0;
  /// `--respawn`: restarts of lost ranks, of all together, 0 when absent
  int respawn = 0;
  /// `--max-np`: most ranks at a time; `num_proc` when absent
  int max_np = 0;
  /// `--host-discovery`: the script and its arguments, empty when absent
  std::string host_discovery;
  std::string remote_shell = "ssh";  ///< `--remote-shell`
  /// `--elastic-timeout`: seconds
  int elastic_timeout = 600;
  int ssh_port = 0;               ///< `-p`: 1 to 65535, 0 when absent
  std::string network_interface;  ///< `--network-interface`, empty when absent
  std::string extra_mpi_flags;    ///< `--extra-mpi-flags`: one string, split like a shell does
  std::string prefix;             ///< `--prefix` of mpirun on the other hosts
  std::string timeline_filename;  ///< `--timeline-filename`
  std::string mpirun;             ///< `--mpirun`: path, empty when absent
  std::vector<std::string> environment;  ///< each `-x`: `VAR` or `VAR=VALUE`
  BindPolicy bind = BindPolicy::Auto;    ///< `--bind-to`
  Launcher launcher = Launcher::Auto;    ///< `--launcher`
  bool verbose = false;
  bool fault_tolerant = false;
  bool oversubscribe = false;  ///< any number of ranks for a core of this machine
  bool show_version = false;
  bool check_build = false;
  std::string help_text;             ///< not empty when help was asked for
  std::vector<std::string> command;  ///< everything from the first positional on, untouched

  /// Whether ranks come and go besides those that are lost.
  [[nodiscard]] bool is_elastic() const { return max_np > num_proc || !host_discovery.empty(); }
};

/// Reads the arguments of bfrun, its own name left out.
///
/// Options end at the first argument that is not one, or at `--`: from there on everything is the
/// command. `-np` is understood ahead of the command only.
/// @throws UsageError, which names the option, what it wants and what was found.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

}  // namespace bluefog::bfrun
