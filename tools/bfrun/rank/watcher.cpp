#include "tools/bfrun/rank/watcher.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "tools/bfrun/job/pipe.hpp"
#include "tools/bfrun/job/signal_watch.hpp"

namespace bluefog::bfrun {
namespace {

using std::chrono::milliseconds;

/// mpirun kills the group of a rank a quarter of a second after SIGTERM, and this process with it.
constexpr milliseconds kBeforeTheKill{120};
/// Programs that the command has left behind often end by themselves once they notice.
constexpr milliseconds kToNotice{200};
constexpr milliseconds kToEnd{300};
constexpr milliseconds kToDie{1000};

/// All signals except those that only the faulting process itself can cause.
sigset_t signals_to_watch() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGTRAP}) {
    sigdelset(&set, fault);
  }
  return set;
}

bool leads_group() { return getpgrp() == getpid(); }

}  // namespace

int parent_died_signal() { return SIGRTMIN; }

int leave_signal() { return SIGRTMIN + 3; }

int kill_signal() { return SIGRTMIN + 7; }

sigset_t block_signals_to_watch() {
  const sigset_t watched = signals_to_watch();
  sigset_t old_mask;
  sigprocmask(SIG_BLOCK, &watched, &old_mask);
  return old_mask;
}

Watcher::Watcher(Rank rank, const Descendants& descendants, std::function<void()> on_exit_note,
                 std::function<void()> on_joining, std::function<void()> on_departure)
    : rank_(std::move(rank)),
      descendants_(descendants),
      on_exit_note_(std::move(on_exit_note)),
      on_joining_(std::move(on_joining)),
      on_departure_(std::move(on_departure)) {
  const sigset_t watched = signals_to_watch();
  signals_ = Descriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.get() < 0) {
    fail("signalfd for the watcher of a rank");
  }
}

ExitStatus Watcher::wait_for_end() {
  std::array<pollfd, 3> sources{pollfd{signals_.get(), POLLIN, 0}, pollfd{rank_.bfrun, POLLIN, 0},
                                pollfd{rank_.control, POLLIN, 0}};
  while (true) {
    poll(sources.data(), sources.size(), time_left(Clock::now()));
    if (sources[1].revents != 0) {
      end_after_bfrun();
    }
    if (sources[2].revents != 0) {
      take_control();
    }
    if (const auto status = take_signals()) {
      return *status;
    }
    act_on_time(Clock::now());
  }
}

// SIGCHLD comes before the signals by which the command had said what it does.
std::optional<ExitStatus> Watcher::take_signals() {
  std::optional<ExitStatus> end;
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const auto status = take({static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid)});
    end = end ? end : status;
  }
  return end;
}

std::optional<ExitStatus> Watcher::take(const Signal& signal) {
  if (signal.number == SIGCHLD) {
    return status_of_command();
  }
  if (signal.number == parent_died_signal()) {
    // The parent's threads may end without it: only getppid is to be believed.
    if (getppid() != rank_.parent) {
      end_all();
    }
  } else if (signal.number == exit_note_signal()) {
    // A child of the command may exit as it likes: the command decides what comes of it.
    if (signal.sender == rank_.command) {
      take_exit_note();
    }
  } else if (signal.number == joining_signal()) {
    on_joining_();
  } else if (signal.number == departure_signal()) {
    on_departure_();
  } else if (signal.number == leave_signal()) {
    tell_to_leave();
  } else if (signal.number == kill_signal()) {
    kill(rank_.command, SIGKILL);
  } else {
    pass_on(signal);
  }
  return std::nullopt;
}

/// Waits for the children that have ended, which orphans have become too.
std::optional<ExitStatus> Watcher::status_of_command() const {
  const std::optional<ExitStatus> found = reap_children(rank_.command);
  const bool was_ours = found && found->killed_by == SIGKILL && announced_code_ &&
                        kill_command_at_ == Clock::time_point::max();
  return was_ours ? ExitStatus{*announced_code_, 0} : found;
}

int Watcher::time_left(Clock::time_point now) const {
  milliseconds left{-1};
  for (const auto& due : {kill_command_at_, kill_strangers_at_}) {
    if (!due || *due == Clock::time_point::max()) {
      continue;
    }
    const auto until = std::max(std::chrono::ceil<milliseconds>(*due - now), milliseconds(0));
    left = left < milliseconds(0) ? until : std::min(left, until);
  }
  return static_cast<int>(left.count());
}

void Watcher::act_on_time(Clock::time_point now) {
  if (kill_command_at_ && now >= *kill_command_at_) {
    kill_command_at_ = Clock::time_point::max();
    kill(rank_.command, SIGKILL);
  }
  if (kill_strangers_at_ && now >= *kill_strangers_at_) {
    kill_strangers_at_ = Clock::time_point::max();
    descendants_.kill_other_groups();
  }
}

void Watcher::tell_to_leave() {
  told_to_end_ = true;
  kill(rank_.command, SIGTERM);
}

void Watcher::take_control() {
  unsigned char number = 0;
  const ssize_t count = read(rank_.control, &number, 1);
  if (count < 0 && errno == EINTR) {
    return;
  }
  if (count <= 0) {
    end_after_bfrun();
  }
  if (number == leave_signal()) {
    tell_to_leave();
  } else if (number == kill_signal()) {
    kill(rank_.command, SIGKILL);
  } else if (leads_group()) {
    kill(0, number);  // as a bfrun of this machine would: this process gets it, too
  }
}

void Watcher::take_exit_note() {
  on_exit_note_();
  const auto note = read_exit_note(rank_.exit_note);
  if (!note || note->code == 0 || announced_code_) {
    return;
  }
  announced_code_ = static_cast<int>(note->code);
  kill_command_at_ = Clock::now() + kExitGrace;
}

/// Whether the command was killed by another signal than `number`: SIGTERM is taken ahead of a
/// SIGCHLD that came before it. A command that has exited may have done so because of `number`,
/// which mpirun sends to the whole group.
bool Watcher::was_killed_by_other_than(int number) const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(rank_.command), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == rank_.command && info.si_code != CLD_EXITED && info.si_status != number;
}

void Watcher::pass_on(const Signal& signal) {
  if (was_killed_by_other_than(signal.number)) {
    return;
  }
  if (ends_programs(signal.number)) {
    told_to_end_ = true;
    if (!kill_strangers_at_) {
      kill_strangers_at_ = Clock::now() + kBeforeTheKill;
    }
  }
  const bool is_ours = signal.sender == rank_.parent || signal.sender == getpid();
  const bool sent_to_group = is_ours && leads_group();
  if (!sent_to_group) {
    kill(rank_.command, signal.number);
  }
}

void Watcher::end_descendants() const {
  const bool has_time = !told_to_end_;
  if (has_time && (descendants_.await(kToNotice) || descendants_.ask_to_end(kToEnd))) {
    return;
  }
  descendants_.kill_all(kToDie);
}

/// bfrun ends after all watchers, unless it is killed: then its folder is left to them.
void Watcher::end_after_bfrun() const {
  kill(rank_.command, SIGKILL);
  descendants_.kill_all(kToDie);
  std::error_code ignored;
  if (!rank_.session.empty()) {
    std::filesystem::remove_all(rank_.session, ignored);
  }
  end_all();
}

void Watcher::end_all() const {
  kill(rank_.command, SIGKILL);
  descendants_.kill_all(kToDie);
  if (leads_group()) {
    kill(0, SIGKILL);
  }
  _exit(1);
}

}  // namespace bluefog::bfrun
