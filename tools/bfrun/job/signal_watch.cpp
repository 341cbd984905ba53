#include "tools/bfrun/job/signal_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tools/bfrun/job/pipe.hpp"
#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

constexpr std::array<int, 4> kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

sigset_t watched_signals() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGCHLD, SIGUSR1, SIGUSR2, more_ranks_signal(), fewer_ranks_signal()}) {
    sigaddset(&watched, number);
  }
  for (const int number : kEnding) {
    sigaddset(&watched, number);
  }
  return watched;
}

sigset_t block_watched_signals() {
  const sigset_t watched = watched_signals();
  sigset_t old_mask;
  sigprocmask(SIG_BLOCK, &watched, &old_mask);
  return old_mask;
}

}  // namespace

bool is_crash(int number) {
  constexpr std::array kCrashes{SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
  return std::ranges::find(kCrashes, number) != kCrashes.end();
}

bool ends_programs(int signal_number) {
  return std::ranges::find(kEnding, signal_number) != kEnding.end();
}

int more_ranks_signal() { return SIGRTMIN + 4; }
int fewer_ranks_signal() { return SIGRTMIN + 5; }

SignalWatch::SignalWatch() {
  static_cast<void>(old_mask());
  const sigset_t watched = watched_signals();
  descriptor_ = Descriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (descriptor_.get() < 0) {
    fail("signalfd");
  }
}

const sigset_t& SignalWatch::old_mask() {
  static const sigset_t mask = block_watched_signals();
  return mask;
}

std::vector<signalfd_siginfo> SignalWatch::take() const {
  std::vector<signalfd_siginfo> taken;
  signalfd_siginfo info{};
  while (read(descriptor_.get(), &info, sizeof info) == sizeof info) {
    taken.push_back(info);
  }
  return taken;
}

void SignalWatch::refuse_start(const std::string& program) const {
  sigset_t waiting;
  sigpending(&waiting);
  for (const int number : kEnding) {
    if (sigismember(&waiting, number) == 1) {
      throw CommandError(128 + number, fmt::format("{} was not started: told to end by signal {}",
                                                   program, name_of_signal(number)));
    }
  }
}

}  // namespace bluefog::bfrun
