#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "tools/bfrun/job/descendants.hpp"
#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/pipe.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/signal_watch.hpp"

namespace bluefog::bfrun {
namespace {

/// The longest time in which what the child has left behind must be dead.
constexpr std::chrono::milliseconds kSweepAfterMpirun{1500};

struct Child {
  pid_t pid = -1;
  bool own_group = false;
  Descriptor errors;  ///< its standard error
};

/// The child's part between fork and exec: only calls that are safe there.
[[noreturn]] void become(const std::vector<char*>& words, const std::vector<char*>& environment,
                         bool own_group, pid_t parent, const sigset_t& old_mask, int errors,
                         int failure) {
  // An mpirun that hangs hears no other signal, and its children learn of bfrun's end themselves.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(1);
  }
  if (own_group) {
    setpgid(0, 0);
  }
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  dup2(errors, STDERR_FILENO);
  execve(words[0], words.data(), environment.data());
  const int reason = errno;
  const ssize_t ignored = write(failure, &reason, sizeof reason);
  _exit(ignored == sizeof reason ? kNotFoundCode : kNotExecutableCode);
}

Child start(const std::vector<std::string>& words, const std::vector<std::string>& environment,
            const sigset_t& old_mask) {
  const auto word_pointers = to_pointers(words);
  const auto environment_pointers = to_pointers(environment);
  Pipe errors = make_pipe();
  Pipe failure = make_pipe();
  Child child;
  // A child that reads a terminal must stay in its foreground group.
  child.own_group = isatty(STDIN_FILENO) == 0;
  const pid_t self = getpid();
  child.pid = fork();
  if (child.pid < 0) {
    fail("fork");
  }
  if (child.pid == 0) {
    become(word_pointers, environment_pointers, child.own_group, self, old_mask,
           errors.write_end.get(), failure.write_end.get());
  }
  failure.write_end.reset();
  int reason = 0;
  if (read(failure.read_end.get(), &reason, sizeof reason) == sizeof reason) {
    waitpid(child.pid, nullptr, 0);
    throw TransportError(fmt::format("cannot start {}: {}", words.front(), strerror(reason)));
  }
  child.errors = std::move(errors.read_end);
  return child;
}

class Forwarder {
 public:
  Forwarder(const Child& child, const std::function<void(int)>& on_signal)
      : child_(child), on_signal_(on_signal) {}

  void handle(const signalfd_siginfo& info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (!once_.is_new(number)) {
      return;
    }
    on_signal_(number);
    const bool child_has_it = info.ssi_code == SI_KERNEL && !child_.own_group;
    if (!child_has_it) {
      kill(child_.pid, number);
    }
  }

 private:
  const Child& child_;
  const std::function<void(int)>& on_signal_;
  SignalsOnce once_;
};

/// Serves the child until its end.
ExitStatus follow(const Child& child, const ChildEvents& events, const SignalWatch& signals) {
  fcntl(child.errors.get(), F_SETFL, O_NONBLOCK);
  Forwarder forwarder(child, events.on_signal);
  std::array<pollfd, 3> sources{pollfd{signals.descriptor(), POLLIN, 0},
                                pollfd{child.errors.get(), POLLIN, 0},
                                pollfd{events.descriptor, POLLIN, 0}};
  while (true) {
    const ChildCare care = events.before_sleep();
    if (care.kill) {
      kill(child.pid, SIGKILL);
    }
    if (poll(sources.data(), sources.size(), static_cast<int>(care.sleep.count())) < 0 &&
        errno != EINTR) {
      fail("poll");
    }
    if (sources[1].revents != 0 && !read_available(child.errors.get(), events.on_stderr)) {
      sources[1].fd = -1;
    }
    if (sources[2].revents != 0) {
      events.on_readable();
    }
    for (const signalfd_siginfo& info : signals.take()) {
      if (info.ssi_signo != SIGCHLD) {
        forwarder.handle(info);
      }
    }
    if (const auto status = reap_children(child.pid)) {
      // The dead child's words are all in the pipe by now; other processes may keep the pipe open.
      read_available(child.errors.get(), events.on_stderr);
      if (events.descriptor >= 0) {
        events.on_readable();
      }
      return *status;
    }
  }
}

}  // namespace

ExitStatus run_child(const std::vector<std::string>& words,
                     const std::vector<std::string>& environment, const ChildEvents& events) {
  const SignalWatch signals;
  signals.refuse_start(words.front());
  signal(SIGPIPE, SIG_IGN);
  const Descendants descendants;
  const Child child = start(words, environment, SignalWatch::old_mask());
  try {
    const ExitStatus status = follow(child, events, signals);
    descendants.kill_all(kSweepAfterMpirun);
    return status;
  } catch (const TransportError&) {
    kill(child.pid, SIGKILL);
    descendants.kill_all(kSweepAfterMpirun);
    throw;
  }
}

}  // namespace bluefog::bfrun
