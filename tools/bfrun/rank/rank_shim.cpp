#include "tools/bfrun/rank/rank_shim.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/numbers.hpp"

namespace bluefog::bfrun {
namespace {

/// The signal that the kernel sends when the process that started us has died.
const int kParentDied = SIGRTMIN;

/// All signals except those that only the faulting process itself can cause.
sigset_t signals_to_watch() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGTRAP}) sigdelset(&set, fault);
  return set;
}

bool ends_programs(int signal_number) {
  return signal_number == SIGTERM || signal_number == SIGINT || signal_number == SIGHUP ||
         signal_number == SIGQUIT;
}

/// Writes a report in one piece, once the pipe is empty of what the rank wrote before, so that
/// mpirun forwards it in one piece too. Returns false when nobody is left to take it.
bool send_report(const RankReport& report, const std::string& key) {
  if (key.empty()) return true;
  for (int attempt = 0; attempt < 100; ++attempt) {
    int waiting = 0;
    if (ioctl(STDERR_FILENO, FIONREAD, &waiting) != 0 || waiting == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return write_to_stderr(encode(report, key)) || errno != EPIPE;
}

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
    if (!usable_) return;
    const char go = 1;
    while (write(ends_[1], &go, 1) < 0 && errno == EINTR) {
    }
    close(ends_[0]);
    close(ends_[1]);
  }

  [[nodiscard]] bool pass() const {
    if (!usable_) return true;
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
  if (!gate.pass()) _exit(1);
  bind_this_process(cpus);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  for (const char* name : {kReportKeyVariable, kBindVariable}) unsetenv(name);
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

class Watcher {
 public:
  /// @param on_exit_note called when the command says that it exits.
  Watcher(pid_t child, pid_t parent, std::function<void()> on_exit_note)
      : child_(child), parent_(parent), on_exit_note_(std::move(on_exit_note)) {}

  /// Waits for the end of the command, passing on the signals that reach this process.
  int wait_for_end(const sigset_t& watched) {
    while (true) {
      siginfo_t info{};
      if (sigwaitinfo(&watched, &info) < 0) continue;
      int status = 0;
      if (info.si_signo == SIGCHLD) {
        if (waitpid(child_, &status, WNOHANG) == child_ && !WIFSTOPPED(status)) return status;
      } else if (info.si_signo == kParentDied) {
        // The parent's threads may end without it: only getppid is to be believed.
        if (getppid() != parent_) end_all();
      } else if (info.si_signo == exit_note_signal()) {
        // A child of the command may exit as it likes: the command decides what comes of it.
        if (info.si_pid == child_) on_exit_note_();
      } else {
        pass_on(info);
      }
    }
  }

  [[nodiscard]] bool told_to_end() const { return told_to_end_; }

 private:
  [[nodiscard]] bool leads_group() const { return getpgrp() == getpid(); }

  /// Whether the command was killed by another signal than `number`: SIGTERM is taken ahead of a
  /// SIGCHLD that came before it. A command that has exited may have done so because of `number`,
  /// which mpirun sends to the whole group.
  [[nodiscard]] bool was_killed_by_other_than(int number) const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child_ && info.si_code != CLD_EXITED && info.si_status != number;
  }

  void pass_on(const siginfo_t& info) {
    if (was_killed_by_other_than(info.si_signo)) return;
    told_to_end_ = told_to_end_ || ends_programs(info.si_signo);
    const bool sent_to_group = info.si_pid == parent_ && leads_group();
    if (!sent_to_group) kill(child_, info.si_signo);
  }

  [[noreturn]] void end_all() const {
    kill(child_, SIGKILL);
    if (leads_group()) kill(0, SIGKILL);
    _exit(1);
  }

  pid_t child_;
  pid_t parent_;
  std::function<void()> on_exit_note_;
  bool told_to_end_ = false;
};

/// Ends this process the way the command ended.
[[nodiscard]] int end_like(const ExitStatus& status) {
  if (status.killed_by == 0) return status.code;
  prctl(PR_SET_DUMPABLE, 0);  // one core file is enough
  signal(status.killed_by, SIG_DFL);
  raise(status.killed_by);
  sigset_t unblocked;
  sigemptyset(&unblocked);
  sigaddset(&unblocked, status.killed_by);
  sigprocmask(SIG_UNBLOCK, &unblocked, nullptr);
  return status.shell_code();
}

int watch(const std::vector<std::string>& command, const Environment& environment,
          const RankIdentity& identity, const Placement& placement, const std::string& key) {
  const sigset_t watched = signals_to_watch();
  sigset_t old_mask;
  sigprocmask(SIG_BLOCK, &watched, &old_mask);
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, kParentDied);
  if (getppid() != parent) return 1;

  const auto cpus = share_here(placement, identity.local_rank);
  const Gate gate;
  const int exit_note = make_exit_note();
  const pid_t child = fork();
  if (child < 0) {
    write_to_stderr(fmt::format("bfrun: rank {}: fork: {}\n", identity.rank, strerror(errno)));
    return kNotExecutableCode;
  }
  if (child == 0) become(command, environment, cpus, gate, exit_note, old_mask);

  RankReport report;
  report.rank = identity.rank;
  report.local_rank = identity.local_rank;
  report.local_size = identity.local_size;
  report.pid = child;
  report.placement = placement;
  report.host = host_name();
  // A dead mpirun is nobody's parent any more: nothing would end this rank.
  if (!send_report(report, key)) {
    kill(child, SIGKILL);
    return 1;
  }
  gate.open();

  // A rank that exits may wait in MPI_Finalize until mpirun kills it, because others have died of
  // what they heard: bfrun is told before.
  Watcher watcher(child, parent, [&] {
    if (const auto note = read_exit_note(exit_note)) {
      RankReport exits = report;
      exits.kind = RankReport::Kind::Ended;
      exits.exit_code = static_cast<int>(note->code);
      exits.ended_at_us = note->exited_at_us;
      static_cast<void>(send_report(exits, key));
    }
  });
  const ExitStatus status = ExitStatus::from_wait(watcher.wait_for_end(watched));
  report.ended_at_us = microseconds_since_1970();
  report.kind = RankReport::Kind::Ended;
  report.exit_code = status.code;
  report.killed_by = status.killed_by;
  report.told_to_end = watcher.told_to_end();
  static_cast<void>(send_report(report, key));
  return end_like(status);
}

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
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
  const auto rank = number("OMPI_COMM_WORLD_RANK");
  const auto size = number("OMPI_COMM_WORLD_SIZE");
  const auto local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
  const auto local_size = number("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!rank || !size || !local_rank || !local_size) return std::nullopt;
  const bool sensible = *rank >= 0 && *rank < *size && *local_rank >= 0 &&
                        *local_rank < *local_size && *local_size <= *size;
  if (!sensible) return std::nullopt;
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
  environment.erase(kReportKeyVariable);
  environment.erase(kBindVariable);
}

int run_rank(const std::vector<std::string>& command) {
  Environment environment = current_environment();
  const auto identity = read_identity(environment);
  if (!identity || command.empty()) {
    write_to_stderr(
        "bfrun: --exec-rank is for mpirun: OMPI_COMM_WORLD_RANK and a command wanted\n");
    return 2;
  }
  const std::string key = value_of(environment, kReportKeyVariable);
  const BindPolicy policy = bind_policy_from(value_of(environment, kBindVariable));
  const Placement placement = choose_placement_here(identity->local_size, policy);
  add_rank_variables(*identity, placement, environment);
  // Open MPI tells the program its own command line (MPI_INFO_ENV): this must not be the shim's.
  environment["OMPI_COMMAND"] = command.front();
  environment["OMPI_ARGV"] = fmt::format("{}", fmt::join(command.begin() + 1, command.end(), " "));
  return watch(command, environment, *identity, placement, key);
}

}  // namespace bluefog::bfrun
