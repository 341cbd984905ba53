#include "tools/bfrun/job/own_launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "tools/bfrun/job/descendants.hpp"
#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/input_pump.hpp"
#include "tools/bfrun/job/pipe.hpp"
#include "tools/bfrun/job/signal_watch.hpp"

namespace bluefog::bfrun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// The longest time in which what the ranks have left behind must be dead.
constexpr milliseconds kSweep{1500};

/// The descriptors that a rank begins with.
struct Streams {
  int input = -1;
  int errors = -1;
};

/// The child's part between fork and exec: only calls that are safe there.
[[noreturn]] void become(const std::vector<char*>& words, const std::vector<char*>& environment,
                         pid_t parent, const Streams& streams) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(1);
  }
  setpgid(0, 0);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &SignalWatch::old_mask(), nullptr);
  dup2(streams.input, STDIN_FILENO);
  dup2(streams.errors, STDERR_FILENO);
  execve(words[0], words.data(), environment.data());
  _exit(errno == ENOENT ? kNotFoundCode : kNotExecutableCode);
}

pid_t start(const OwnRanks& ranks, int rank, const Streams& streams) {
  Environment own = ranks.environment;
  own["RANK"] = own["LOCAL_RANK"] = own[kOwnRankVariable] = std::to_string(rank);
  own["WORLD_SIZE"] = own["LOCAL_WORLD_SIZE"] = own[kOwnSizeVariable] = std::to_string(ranks.count);
  const auto strings = to_strings(own);
  const auto words = to_pointers(ranks.words);
  const auto environment = to_pointers(strings);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) {
    fail("fork");
  }
  if (child == 0) {
    become(words, environment, self, streams);
  }
  setpgid(child, child);  // whoever is first: a signal may be sent at once
  return child;
}

/// The processes that watch the ranks, and how they are ended.
class Watchers {
 public:
  explicit Watchers(const OwnRanks& ranks)
      : fault_tolerant_(ranks.fault_tolerant), spare_(ranks.count - ranks.enough) {
    if (ranks.enough == 0) {
      spare_ = -1;
    }
  }

  void add(pid_t process) { running_.push_back(process); }
  [[nodiscard]] bool are_gone() const { return running_.empty(); }

  /// The first failure, or success, also where enough have ended well.
  [[nodiscard]] ExitStatus status() const {
    return failures_ <= spare_ && !is_ending_ ? ExitStatus{} : first_failure_;
  }

  void reap() {
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (std::erase(running_, child) == 0) {
        continue;  // what a rank has left behind
      }
      const ExitStatus end = ExitStatus::from_wait(status);
      if (end.shell_code() == 0) {
        continue;
      }
      if (first_failure_.code == 0) {
        first_failure_.code = end.shell_code();
      }
      ++failures_;
      const bool goes_on =
          spare_ >= 0 ? failures_ <= spare_ : fault_tolerant_ && end.killed_by != 0;
      if (!goes_on) {
        end_others_by(Clock::now() + kSpareTime);
      }
    }
  }

  void pass_on(int signal_number) {
    if (ends_programs(signal_number)) {
      begin_end();
    } else {
      signal_all(signal_number);
    }
  }

  void kill_all() const { signal_all(SIGKILL); }

  /// The time until there is something to do; negative: nothing.
  [[nodiscard]] milliseconds time_left(Clock::time_point now) const {
    const auto due = is_ending_ ? kill_at_ : end_at_;
    if (!due || has_killed_) {
      return milliseconds(-1);
    }
    return std::max(std::chrono::ceil<milliseconds>(*due - now), milliseconds(0));
  }

  /// @param spare_others as `ChildCare::spare_others`.
  void act_on_time(Clock::time_point now, bool spare_others) {
    if (!is_ending_ && end_at_ && (!spare_others || now >= *end_at_)) {
      begin_end();
    }
    if (!is_ending_ || has_killed_ || now < *kill_at_) {
      return;
    }
    has_killed_ = true;
    kill_all();
  }

 private:
  void end_others_by(Clock::time_point latest) {
    if (!end_at_) {
      end_at_ = latest;
    }
  }

  void begin_end() {
    if (std::exchange(is_ending_, true)) {
      return;
    }
    kill_at_ = Clock::now() + kEndGrace;
    signal_all(SIGTERM);
  }

  void signal_all(int number) const {
    for (const pid_t watcher : running_) {
      kill(-watcher, number);
    }
  }

  bool fault_tolerant_;
  int spare_;  ///< so many may fail; negative: that is not counted
  int failures_ = 0;
  std::vector<pid_t> running_;
  ExitStatus first_failure_;
  bool is_ending_ = false;
  bool has_killed_ = false;
  std::optional<Clock::time_point> end_at_;
  std::optional<Clock::time_point> kill_at_;
};

milliseconds sooner(milliseconds one, milliseconds other) {
  if (one < milliseconds(0)) {
    return other;
  }
  return other < milliseconds(0) ? one : std::min(one, other);
}

/// bfrun's ends of the ranks' streams.
struct OwnEnds {
  Descriptor errors;
  Descriptor input;  ///< to rank 0, where this process reads a terminal
};

OwnEnds start_all(const OwnRanks& ranks, Watchers& watchers) {
  Pipe errors = make_pipe();
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (nothing.get() < 0) {
    fail("/dev/null");
  }
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  Pipe input;
  if (is_terminal) {
    input = make_pipe();
  }
  for (int rank = 0; rank < ranks.count; ++rank) {
    const int first_input = is_terminal ? input.read_end.get() : STDIN_FILENO;
    watchers.add(start(
        ranks, rank,
        {.input = rank == 0 ? first_input : nothing.get(), .errors = errors.write_end.get()}));
  }
  fcntl(errors.read_end.get(), F_SETFL, O_NONBLOCK);
  return {std::move(errors.read_end), std::move(input.write_end)};
}

/// Serves the ranks until all are gone.
void follow(OwnEnds ends, const OwnRanks& ranks, const ChildEvents& events,
            const SignalWatch& signals, Watchers& watchers) {
  InputPump pump(std::move(ends.input));
  if (ranks.on_started) {
    ranks.on_started();
  }
  SignalsOnce once;
  std::array<pollfd, 4> sources{pollfd{signals.descriptor(), POLLIN, 0},
                                pollfd{ends.errors.get(), POLLIN, 0},
                                pollfd{events.descriptor, POLLIN, 0}, pollfd{-1, 0, 0}};
  while (!watchers.are_gone()) {
    const ChildCare care = events.before_sleep();
    if (care.kill) {
      watchers.kill_all();
    }
    watchers.act_on_time(Clock::now(), care.spare_others);
    sources[3] = pump.source();
    const milliseconds sleep = sooner(care.sleep, watchers.time_left(Clock::now()));
    if (poll(sources.data(), sources.size(), static_cast<int>(sleep.count())) < 0 &&
        errno != EINTR) {
      fail("poll");
    }
    if (sources[1].revents != 0 && !read_available(ends.errors.get(), events.on_stderr)) {
      sources[1].fd = -1;
    }
    if (sources[2].revents != 0) {
      events.on_readable();
    }
    pump.serve(sources[3]);
    for (const signalfd_siginfo& info : signals.take()) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD || !once.is_new(number)) {
        continue;
      }
      events.on_signal(number);
      watchers.pass_on(number);
    }
    watchers.reap();
  }
  // The ranks' words are all in the pipe by now; other processes may keep it open.
  read_available(ends.errors.get(), events.on_stderr);
  if (events.descriptor >= 0) {
    events.on_readable();
  }
}

}  // namespace

ExitStatus run_own_ranks(const OwnRanks& ranks, const ChildEvents& events) {
  const SignalWatch signals;
  signals.refuse_start(ranks.words.front());
  signal(SIGPIPE, SIG_IGN);
  const Descendants descendants;
  Watchers watchers(ranks);
  try {
    follow(start_all(ranks, watchers), ranks, events, signals, watchers);
  } catch (const TransportError&) {
    watchers.kill_all();
    descendants.kill_all(kSweep);
    throw;
  }
  descendants.kill_all(kSweep);
  return watchers.status();
}

}  // namespace bluefog::bfrun
