#include "tools/bfrun/elastic/host_discovery.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "bluefog_cpp/base/quoted.hpp"
#include "tools/bfrun/job/pipe.hpp"
#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/job/signal_watch.hpp"
#include "tools/bfrun/options.hpp"
#include "tools/bfrun/shell_words.hpp"

namespace bluefog::bfrun {
namespace {

using std::chrono::milliseconds;

int slots_of(const std::vector<HostSlots>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const HostSlots& host) { return sum + host.slots; });
}

/// Sleeps, unless a signal ends programs meanwhile.
/// @throws CommandError with 128 + signal.
void rest(const SignalWatch& signals, milliseconds time) {
  pollfd source{signals.descriptor(), POLLIN, 0};
  poll(&source, 1, static_cast<int>(time.count()));
  for (const signalfd_siginfo& info : signals.take()) {
    const int number = static_cast<int>(info.ssi_signo);
    if (ends_programs(number)) {
      throw CommandError(128 + number,
                         fmt::format("told to end by signal {} before there were enough slots",
                                     name_of_signal(number)));
    }
  }
}

/// The program's part between fork and exec: only calls that are safe there.
[[noreturn]] void become_script(const std::vector<char*>& words, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
  }
  dup2(output, STDOUT_FILENO);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &SignalWatch::old_mask(), nullptr);
  execv(words[0], words.data());
  _exit(kNotFoundCode);
}

}  // namespace

DiscoveryScript::DiscoveryScript(const std::string& text, int least, std::string_view search_path)
    : name_(fmt::format("--host-discovery {}", bluefog::quoted(text))),
      words_(split_shell_words(text, "--host-discovery")),
      least_(least) {
  if (words_.empty()) {
    throw UsageError("--host-discovery wants a program that prints HOST:SLOTS lines, found none");
  }
  if (const int code = check_program(words_.front(), search_path); code != 0) {
    throw CommandError(
        code, fmt::format("{}: {}", name_,
                          code == kNotFoundCode ? "no such program" : "not an executable file"));
  }
  words_.front() = find_program(words_.front(), search_path);
}

std::vector<HostSlots> DiscoveryScript::read(const ExitStatus& end,
                                             const std::string& output) const {
  if (end.killed_by != 0) {
    throw UsageError(
        fmt::format("{} was killed by signal {}", name_, name_of_signal(end.killed_by)));
  }
  if (end.code != 0) {
    throw UsageError(fmt::format("{} ended with code {}, expected 0", name_, end.code));
  }
  if (output.size() >= kMostBytes) {
    throw UsageError(fmt::format("{}: expected less than {} bytes, found more", name_, kMostBytes));
  }
  std::vector<HostSlots> hosts = parse_discovered_hosts(output, name_);
  std::string own_name;
  for (HostSlots& host : hosts) {
    if (!is_this_host(host.name, host_name())) {
      continue;
    }
    if (!own_name.empty()) {
      throw UsageError(
          fmt::format("{}: '{}' and '{}' are both this machine; give all its slots once", name_,
                      own_name, host.name));
    }
    own_name = host.name;
    host.name = "localhost";
  }
  return hosts;
}

std::string DiscoveryScript::too_long() const {
  return fmt::format("{} was still there after {} s, and was killed", name_,
                     kLongestRun.count() / 1000);
}

std::vector<HostSlots> await_slots(const DiscoveryScript& script, std::chrono::seconds limit) {
  const SignalWatch signals;
  const auto end = HostDiscovery::Clock::now() + limit;
  int said = -1;
  while (true) {
    const Answer answer = capture_output(script.words(), DiscoveryScript::kLongestRun);
    if (!answer.in_time) {
      throw UsageError(script.too_long());
    }
    std::vector<HostSlots> hosts = script.read(answer.end, answer.output);
    const int found = slots_of(hosts);
    if (found >= script.least()) {
      return hosts;
    }
    if (HostDiscovery::Clock::now() >= end) {
      throw UsageError(fmt::format(
          "--host-discovery: expected --min-np {} slots within {} s (--elastic-timeout), found {}",
          script.least(), limit.count(), found));
    }
    if (std::exchange(said, found) != found) {
      say(fmt::format("waits for {} slots (--min-np), --host-discovery names {}", script.least(),
                      found));
    }
    rest(signals, DiscoveryScript::kPause);
  }
}

HostDiscovery::HostDiscovery(DiscoveryScript script, std::vector<HostSlots> first,
                             std::function<void(const std::vector<HostSlots>&)> on_answer,
                             std::function<void(const std::string&)> on_problem,
                             Clock::time_point now)
    : script_(std::move(script)),
      last_(std::move(first)),
      on_answer_(std::move(on_answer)),
      on_problem_(std::move(on_problem)),
      due_(now + DiscoveryScript::kPause) {}

HostDiscovery::~HostDiscovery() {
  if (process_ > 0) {
    kill_group();
  }
}

void HostDiscovery::read() {
  const bool has_more = read_available(output_.get(), [this](std::string_view piece) {
    if (said_.size() < DiscoveryScript::kMostBytes) {
      said_.append(piece);
    }
  });
  if (!has_more) {
    output_.reset();
  }
}

milliseconds HostDiscovery::time_left(Clock::time_point now) const {
  if (is_too_late_) {
    return milliseconds(-1);
  }
  return std::max(std::chrono::ceil<milliseconds>(due_ - now), milliseconds(0));
}

void HostDiscovery::act(Clock::time_point now) {
  if (is_too_late_ || now < due_) {
    return;
  }
  if (process_ > 0) {
    is_too_late_ = true;
    kill_group();
    return;
  }
  try {
    start(now);
  } catch (const TransportError& error) {
    due_ = now + DiscoveryScript::kPause;
    tell(fmt::format("--host-discovery could not be started: {}", error.what()));
  }
}

void HostDiscovery::start(Clock::time_point now) {
  Pipe output = make_pipe();
  const auto words = to_pointers(script_.words());
  const pid_t child = fork();
  if (child < 0) {
    fail("fork");
  }
  if (child == 0) {
    become_script(words, output.write_end.get());
  }
  setpgid(child, child);
  process_ = child;
  due_ = now + DiscoveryScript::kLongestRun;
  said_.clear();
  output_ = std::move(output.read_end);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
}

void HostDiscovery::kill_group() const { kill(-process_, SIGKILL); }

bool HostDiscovery::take_end(pid_t process, const ExitStatus& end, Clock::time_point now) {
  if (process != process_) {
    return false;
  }
  if (output_.get() >= 0) {
    read();  // all its words are there; what it has started may keep the pipe open
  }
  output_.reset();
  kill_group();
  process_ = -1;
  due_ = now + DiscoveryScript::kPause;
  if (std::exchange(is_too_late_, false)) {
    tell(script_.too_long());
    return true;
  }
  try {
    std::vector<HostSlots> hosts = script_.read(end, said_);
    if (const int found = slots_of(hosts); found < script_.least()) {
      throw UsageError(fmt::format("--host-discovery names {} slot{}, fewer than --min-np {}",
                                   found, found == 1 ? "" : "s", script_.least()));
    }
    last_problem_.clear();
    if (hosts != last_) {
      last_ = hosts;
      on_answer_(hosts);
    }
  } catch (const UsageError& problem) {
    tell(problem.what());
  }
  return true;
}

void HostDiscovery::tell(const std::string& problem) {
  if (std::exchange(last_problem_, problem) != problem) {
    on_problem_(problem + "; its answer before that holds");
  }
}

}  // namespace bluefog::bfrun
