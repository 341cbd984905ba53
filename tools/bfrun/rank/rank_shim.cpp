#include "tools/bfrun/rank/rank_shim.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "tools/bfrun/elastic/far_start.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/job/session_folder.hpp"
#include "tools/bfrun/numbers.hpp"
#include "tools/bfrun/rank/voice.hpp"
#include "tools/bfrun/rank/watcher.hpp"

namespace bluefog::bfrun {
namespace {

/// The variables that bfrun has for watchers alone.
constexpr std::array kWatchersVariables{kReportKeyVariable, kBindVariable, kRankLineVariable,
                                        kHostLineVariable, kSessionVariable};

std::int64_t microseconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Holds the child back until its start has been reported: a rank unknown to bfrun never ran. The
/// gate stays shut when the watcher dies.
class Gate {
 public:
  Gate() { usable_ = pipe2(ends_.data(), O_CLOEXEC) == 0; }

  void open() const {
    if (!usable_) {
      return;
    }
    const char go = 1;
    while (write(ends_[1], &go, 1) < 0 && errno == EINTR) {
    }
    close(ends_[0]);
    close(ends_[1]);
  }

  [[nodiscard]] bool pass() const {
    if (!usable_) {
      return true;
    }
    close(ends_[1]);
    char go = 0;
    return read(ends_[0], &go, 1) == 1;
  }

 private:
  std::array<int, 2> ends_{};
  bool usable_ = false;
};

/// The child's part: becomes the command, or ends with the code that a shell gives.
[[noreturn]] void become(const std::vector<std::string>& command, const Environment& environment,
                         const std::vector<int>& cpus, const Gate& gate, int exit_note,
                         const sigset_t& old_mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!gate.pass()) {
    _exit(1);
  }
  bind_this_process(cpus);
  for (const auto& [name, value] : environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  for (const char* name : kWatchersVariables) {
    unsetenv(name);
  }
  unsetenv(kExitNoteVariable);
  if (exit_note >= 0 && fcntl(exit_note, F_SETFD, 0) == 0) {
    setenv(kExitNoteVariable, exit_note_place(exit_note, getppid()).c_str(), 1);
  }
  sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  const auto words = to_pointers(command);
  execvp(words[0], words.data());
  const int reason = errno;
  write_to_stderr(fmt::format("bfrun: cannot run '{}' on host {}: {}\n", command.front(),
                              host_name(), strerror(reason)));
  _exit(reason == ENOENT ? kNotFoundCode : kNotExecutableCode);
}

/// Ends this process the way the command ended.
[[nodiscard]] int end_like(const ExitStatus& status) {
  if (status.killed_by == 0) {
    return status.code;
  }
  prctl(PR_SET_DUMPABLE, 0);  // one core file is enough
  signal(status.killed_by, SIG_DFL);
  raise(status.killed_by);
  sigset_t unblocked;
  sigemptyset(&unblocked);
  sigaddset(&unblocked, status.killed_by);
  sigprocmask(SIG_UNBLOCK, &unblocked, nullptr);
  return status.shell_code();
}

RankReport report_of(const RankIdentity& identity, const Placement& placement, pid_t command) {
  RankReport report;
  report.rank = identity.rank;
  report.local_rank = identity.local_rank;
  report.local_size = identity.local_size;
  report.pid = command;
  report.placement = placement;
  report.host = host_name();
  return report;
}

/// A rank that exits may wait in MPI_Finalize until mpirun kills it, because others have died of
/// what they heard: bfrun is told before.
void report_exit_note(int exit_note, RankReport report, const Voice& voice) {
  const auto note = read_exit_note(exit_note);
  if (!note) {
    return;
  }
  const bool exits = note->code != 0;
  report.kind = exits ? RankReport::Kind::Exiting : RankReport::Kind::Leaving;
  report.exit_code = static_cast<int>(note->code);
  report.ended_at_us = exits ? note->exited_at_us : note->leaving_at_us;
  static_cast<void>(voice.send(report));
}

void report_word(RankReport report, RankReport::Kind kind, const Voice& voice) {
  report.kind = kind;
  static_cast<void>(voice.send(report));
}

int watch(const std::vector<std::string>& command, const Environment& environment,
          const RankIdentity& identity, const Placement& placement, const Voice& voice,
          const std::string& session, int control) {
  const sigset_t old_mask = block_signals_to_watch();
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, parent_died_signal());
  if (getppid() != parent || voice.is_orphaned()) {
    return 1;
  }

  const auto cpus = share_here(placement, identity.local_rank);
  const Gate gate;
  const int exit_note = make_exit_note();
  const Descendants descendants;
  const pid_t child = fork();
  if (child < 0) {
    write_to_stderr(fmt::format("bfrun: rank {}: fork: {}\n", identity.rank, strerror(errno)));
    return kNotExecutableCode;
  }
  if (child == 0) {
    become(command, environment, cpus, gate, exit_note, old_mask);
  }

  RankReport report = report_of(identity, placement, child);
  // A dead mpirun is nobody's parent any more: nothing would end this rank.
  if (!voice.send(report)) {
    kill(child, SIGKILL);
    return 1;
  }
  gate.open();

  Watcher watcher(
      {.command = child,
       .parent = parent,
       .exit_note = exit_note,
       .bfrun = voice.descriptor(),
       .control = control,
       .session = session},
      descendants, [&] { report_exit_note(exit_note, report, voice); },
      [&] { report_word(report, RankReport::Kind::Joining, voice); },
      [&] { report_word(report, RankReport::Kind::Departed, voice); });
  const ExitStatus status = watcher.wait_for_end();
  const std::int64_t ended_at_us = microseconds_since_1970();
  watcher.end_descendants();
  report.kind = RankReport::Kind::Ended;
  report.exit_code = status.code;
  report.killed_by = status.killed_by;
  report.told_to_end = watcher.told_to_end();
  report.ended_at_us = ended_at_us;
  static_cast<void>(voice.send(report));
  return end_like(status);
}

/// Keeps freed memory in the process, because a training step frees and allocates the same memory
/// again and again. The C library's defaults give much of it back in each step, to be mapped and
/// cleared anew.
void keep_freed_memory(Environment& environment) {
  const bool user_chose =
      environment.contains("MALLOC_TRIM_THRESHOLD_") ||
      environment.contains("MALLOC_MMAP_THRESHOLD_") ||
      value_of(environment, "GLIBC_TUNABLES").find("glibc.malloc.") != std::string::npos;
  if (!user_chose) {
    environment["MALLOC_TRIM_THRESHOLD_"] = std::to_string(std::int64_t{4} << 30);
    environment["MALLOC_MMAP_THRESHOLD_"] = std::to_string(std::int64_t{1} << 30);
  }
}

}  // namespace

std::optional<RankIdentity> read_identity(const Environment& environment) {
  const auto number = [&](const char* name) { return parse_int(value_of(environment, name)); };
  const bool by_bfrun = is_started_by_bfrun(environment);
  const auto rank = number(by_bfrun ? "RANK" : "OMPI_COMM_WORLD_RANK");
  const auto size = number(by_bfrun ? "WORLD_SIZE" : "OMPI_COMM_WORLD_SIZE");
  const auto local_rank = number(by_bfrun ? "LOCAL_RANK" : "OMPI_COMM_WORLD_LOCAL_RANK");
  const auto local_size = number(by_bfrun ? "LOCAL_WORLD_SIZE" : "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!rank || !size || !local_rank || !local_size) {
    return std::nullopt;
  }
  const bool sensible = *rank >= 0 && *rank < *size && *local_rank >= 0 &&
                        *local_rank < *local_size && *local_size <= *size;
  if (!sensible) {
    return std::nullopt;
  }
  return RankIdentity{*rank, *size, *local_rank, *local_size};
}

void add_rank_variables(const RankIdentity& identity, const Placement& placement,
                        Environment& environment) {
  environment["RANK"] = std::to_string(identity.rank);
  environment["WORLD_SIZE"] = std::to_string(identity.size);
  environment["LOCAL_RANK"] = std::to_string(identity.local_rank);
  environment["LOCAL_WORLD_SIZE"] = std::to_string(identity.local_size);
  const bool user_set_threads =
      environment.contains("OMP_NUM_THREADS") || environment.contains("MKL_NUM_THREADS");
  if (!user_set_threads) {
    environment["OMP_NUM_THREADS"] = std::to_string(placement.threads);
    environment["MKL_NUM_THREADS"] = std::to_string(placement.threads);
  }
  if (identity.local_size > placement.cores) {
    environment.emplace("OMPI_MCA_mpi_yield_when_idle", "1");
  }
  keep_freed_memory(environment);
  for (const char* name : kWatchersVariables) {
    environment.erase(name);
  }
}

int run_far_rank() {
  const FarStart start = read_far_start(STDIN_FILENO);
  const int control = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (control < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) {
    write_to_stderr(fmt::format("bfrun: host {}: /dev/null: {}\n", host_name(), strerror(errno)));
    return kNotExecutableCode;
  }
  if (chdir(start.folder.c_str()) != 0) {
    write_to_stderr(fmt::format("bfrun: host {} has no folder '{}': {}\n", host_name(),
                                start.folder, strerror(errno)));
    return kNotExecutableCode;
  }
  for (const auto& [name, value] : start.environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  setpgid(0, 0);  // it is signalled as a whole
  return run_rank(start.command, control);
}

int run_rank(const std::vector<std::string>& command, int control) {
  Environment environment = current_environment();
  const auto identity = read_identity(environment);
  if (!identity || command.empty()) {
    write_to_stderr(
        "bfrun: --exec-rank is for mpirun: OMPI_COMM_WORLD_RANK and a command wanted\n");
    return 2;
  }
  const Voice voice(value_of(environment, kReportKeyVariable),
                    {.line = value_of(environment, kRankLineVariable),
                     .host_line = value_of(environment, kHostLineVariable)},
                    identity->rank);
  const std::string session = value_of(environment, kSessionVariable);
  const BindPolicy policy = bind_policy_from(value_of(environment, kBindVariable));
  const Placement placement = choose_placement_here(identity->local_size, policy);
  add_rank_variables(*identity, placement, environment);
  if (!is_started_by_bfrun(environment)) {
    // Open MPI tells the program its own command line (MPI_INFO_ENV): this must not be the shim's.
    environment["OMPI_COMMAND"] = command.front();
    environment["OMPI_ARGV"] =
        fmt::format("{}", fmt::join(command.begin() + 1, command.end(), " "));
  }
  return watch(command, environment, *identity, placement, voice, session, control);
}

}  // namespace bluefog::bfrun
