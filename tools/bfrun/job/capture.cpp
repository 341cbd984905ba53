#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "tools/bfrun/job/descendants.hpp"
#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/job/signal_watch.hpp"
#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = 65536;
constexpr std::chrono::milliseconds kSweepAfterAnswer{1000};

/// Adds what `descriptor` has, as far as there is room; false at the end of the stream.
bool take_output(int descriptor, std::string& output) {
  return read_available(descriptor, [&output](std::string_view piece) {
    if (output.size() < kMostBytes) {
      output.append(piece);
    }
  });
}

[[noreturn]] void become(const std::vector<char*>& words, int output, const sigset_t& mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
  }
  dup2(output, STDOUT_FILENO);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execv(words[0], words.data());
  _exit(kNotFoundCode);
}

/// The first signal among those that have come which ends programs, or 0.
int told_to_end(const SignalWatch& signals) {
  for (const signalfd_siginfo& info : signals.take()) {
    const int number = static_cast<int>(info.ssi_signo);
    if (ends_programs(number)) {
      return number;
    }
  }
  return 0;
}

}  // namespace

Answer capture_output(const std::vector<std::string>& words, std::chrono::milliseconds limit) {
  const SignalWatch signals;
  const Descendants descendants;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return {};
  }
  const Descriptor output(ends[0]);
  Descriptor input(ends[1]);
  const auto pointers = to_pointers(words);
  const pid_t child = fork();
  if (child == 0) {
    become(pointers, input.get(), SignalWatch::old_mask());
  }
  input.reset();
  fcntl(output.get(), F_SETFL, O_NONBLOCK);

  Answer answer;
  const auto end = Clock::now() + limit;
  std::array<pollfd, 2> sources{pollfd{signals.descriptor(), POLLIN, 0},
                                pollfd{output.get(), POLLIN, 0}};
  bool runs = child > 0;
  while (runs && answer.in_time) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    poll(sources.data(), sources.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (!take_output(output.get(), answer.output)) {
      sources[1].fd = -1;
    }
    if (const int number = told_to_end(signals); number != 0) {
      descendants.kill_all(kSweepAfterAnswer);
      throw CommandError(128 + number, fmt::format("told to end by signal {} while {} ran",
                                                   name_of_signal(number), words.front()));
    }
    int status = 0;
    runs = waitpid(child, &status, WNOHANG) == 0;
    answer.end = runs ? ExitStatus{} : ExitStatus::from_wait(status);
    answer.in_time = !runs || Clock::now() < end;
  }
  take_output(output.get(), answer.output);
  descendants.kill_all(kSweepAfterAnswer);
  return answer;
}

}  // namespace bluefog::bfrun
