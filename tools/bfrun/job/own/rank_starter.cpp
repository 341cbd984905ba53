#include "tools/bfrun/job/own/rank_starter.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/bfrun/job/rank_line.hpp"
#include "tools/bfrun/job/signal_watch.hpp"

namespace bluefog::bfrun {
namespace {

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

/// The variables of `rank`, which is in `slot`.
Environment environment_of(const OwnRanks& ranks, int rank, const Slot& slot, Start which) {
  Environment own = ranks.environment;
  own.erase(kJoinVariable);  // of a launch around this one
  if (which == Start::Joins) {
    own.insert_or_assign(std::string(kJoinVariable),
                         std::string(1, '1'));  // gcc 12 warns of a text
  }
  const auto first_there =
      static_cast<int>(std::ranges::count(ranks.slots, slot.host, &Slot::host));
  const std::string size = std::to_string(std::max(ranks.count, rank + 1));
  own["RANK"] = own[kOwnRankVariable] = std::to_string(rank);
  own["WORLD_SIZE"] = own[kOwnSizeVariable] = size;
  own["LOCAL_RANK"] = std::to_string(slot.index);
  own["LOCAL_WORLD_SIZE"] = std::to_string(std::max(first_there, slot.index + 1));
  return own;
}

pid_t fork_rank(const std::vector<std::string>& words, const Environment& variables,
                const Streams& streams) {
  const auto strings = to_strings(variables);
  const auto word_pointers = to_pointers(words);
  const auto environment = to_pointers(strings);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) {
    fail("fork");
  }
  if (child == 0) {
    become(word_pointers, environment, self, streams);
  }
  setpgid(child, child);  // whoever is first: a signal may be sent at once
  return child;
}

/// The words of a watcher before those of its command: bfrun --exec-rank --
constexpr std::ptrdiff_t kOwnWords = 3;

}  // namespace

RankStarter::RankStarter(const OwnRanks& ranks)
    : ranks_(ranks), nothing_(open("/dev/null", O_RDONLY | O_CLOEXEC)), errors_(make_pipe()) {
  if (nothing_.get() < 0) {
    fail("/dev/null");
  }
  if (isatty(STDIN_FILENO) == 1) {
    input_ = make_pipe();
  }
  fcntl(errors_.read_end.get(), F_SETFL, O_NONBLOCK);
}

FarRank RankStarter::start_far(int rank, const Slot& slot, Start which) const {
  const FarHosts& far = ranks_.far;
  Environment there;
  for (const auto& [name, value] : environment_of(ranks_, rank, slot, which)) {
    constexpr std::array<std::string_view, 4> kOfRank{"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                                      "LOCAL_WORLD_SIZE"};
    if (is_exportable(name) || std::ranges::find(kOfRank, name) != kOfRank.end() ||
        std::ranges::find(far.exported, name) != far.exported.end()) {
      there[name] = value;
    }
  }
  for (const auto& [name, value] : far.changed) {
    there[name] = value;
  }
  there.erase(kRankLineVariable);  // of this machine alone
  const std::string bytes =
      encode(FarStart{.folder = std::filesystem::current_path(),
                      .environment = std::move(there),
                      .command = {ranks_.words.begin() + kOwnWords, ranks_.words.end()}});
  Pipe control = make_pipe();
  Pipe errors = make_pipe();
  fcntl(control.write_end.get(), F_SETPIPE_SZ, static_cast<int>(kMostStartBytes));
  fcntl(control.write_end.get(), F_SETFL, O_NONBLOCK);
  fcntl(errors.read_end.get(), F_SETFL, O_NONBLOCK);
  if (write(control.write_end.get(), bytes.data(), bytes.size()) != std::ssize(bytes)) {
    fail("environment and command of a rank on another host");
  }
  std::vector<std::string> words = words_for(far, slot.host);
  const pid_t process =
      fork_rank(words, ranks_.environment,
                {.input = control.read_end.get(), .errors = errors.write_end.get()});
  return {process, std::move(control.write_end), std::move(errors.read_end)};
}

pid_t RankStarter::start(int rank, const Slot& slot, Start which) const {
  const int first_input = input_.read_end.get() >= 0 ? input_.read_end.get() : STDIN_FILENO;
  return fork_rank(
      ranks_.words, environment_of(ranks_, rank, slot, which),
      {.input = rank == 0 ? first_input : nothing_.get(), .errors = errors_.write_end.get()});
}

void RankStarter::finish() {
  if (ranks_.may_start_later) {
    return;
  }
  nothing_.reset();
  errors_.write_end.reset();
  input_.read_end.reset();
}

}  // namespace bluefog::bfrun
