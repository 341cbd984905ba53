#include "tools/bfrun/job/descendants.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tools/bfrun/numbers.hpp"

namespace bluefog::bfrun {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace fs = std::filesystem;

/// The parent in the text of /proc/PID/stat; the name before it may hold blanks and brackets.
pid_t parent_in(const std::string& stat) {
  const auto bracket = stat.rfind(')');
  if (bracket == std::string::npos || bracket + 4 >= stat.size()) {
    return -1;
  }
  const auto begin = bracket + 4;
  return parse_int(stat.substr(begin, stat.find(' ', begin) - begin)).value_or(-1);
}

/// children_of for kernels without /proc/PID/task/TID/children.
std::vector<pid_t> search_children_of(pid_t pid) {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const auto candidate = parse_int(entry->path().filename().string());
    if (!candidate) {
      continue;
    }
    std::ifstream file(entry->path() / "stat");
    std::string stat;
    if (std::getline(file, stat) && parent_in(stat) == pid) {
      found.push_back(*candidate);
    }
  }
  return found;
}

/// Sleeps until a child ends, at most `longest`.
void sleep_until_child_ends(milliseconds longest) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec time{.tv_sec = whole.count(),
                      .tv_nsec = std::chrono::nanoseconds(longest - whole).count()};
  sigtimedwait(&set, nullptr, &time);
}

/// Calls `treat` for the children that `list` gives until it gives none, at most for `longest`.
bool wait_for_none(milliseconds longest, const std::function<std::vector<pid_t>()>& list,
                   const std::function<void(pid_t)>& treat) {
  // One child may become ours while another one's end is waited for, which no signal tells.
  constexpr milliseconds kLook{20};
  const auto end = Clock::now() + longest;
  while (true) {
    reap_children();
    const std::vector<pid_t> children = list();
    if (children.empty()) {
      return true;
    }
    std::ranges::for_each(children, treat);
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (left <= milliseconds(0)) {
      return false;
    }
    sleep_until_child_ends(std::min(left, kLook));
  }
}

}  // namespace

std::optional<ExitStatus> reap_children(pid_t pid) {
  std::optional<ExitStatus> found;
  int status = 0;
  for (pid_t dead = waitpid(-1, &status, WNOHANG); dead > 0; dead = waitpid(-1, &status, WNOHANG)) {
    if (dead == pid) {
      found = ExitStatus::from_wait(status);
    }
  }
  return found;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  bool has_list = false;
  for (fs::directory_iterator thread(fmt::format("/proc/{}/task", pid), error), end;
       !error && thread != end; thread.increment(error)) {
    std::ifstream list(thread->path() / "children");
    has_list = has_list || list.is_open();
    for (pid_t child = 0; list >> child;) {
      children.push_back(child);
    }
  }
  return has_list ? children : search_children_of(pid);
}

Descendants::Descendants() {
  spared_ = children_of(getpid());
  std::ranges::sort(spared_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

bool Descendants::await(milliseconds longest) const {
  return wait_for_none(
      longest, [this] { return children(); }, [](pid_t) {});
}

bool Descendants::ask_to_end(milliseconds longest) const {
  std::vector<pid_t> asked;
  return wait_for_none(
      longest, [this] { return children(); },
      [&asked](pid_t child) {
        if (std::ranges::find(asked, child) != asked.end()) {
          return;
        }
        asked.push_back(child);
        kill(child, SIGTERM);
      });
}

bool Descendants::kill_all(milliseconds longest) const {
  return wait_for_none(
      longest, [this] { return children(); }, [](pid_t child) { kill(child, SIGKILL); });
}

void Descendants::kill_other_groups() const {
  std::vector<pid_t> open = children();
  while (!open.empty()) {
    const pid_t next = open.back();
    open.pop_back();
    const std::vector<pid_t> below = children_of(next);
    open.insert(open.end(), below.begin(), below.end());
    const pid_t group = getpgid(next);
    if (group > 0 && group != getpgrp()) {
      kill(next, SIGKILL);
    }
  }
}

std::vector<pid_t> Descendants::children() const {
  std::vector<pid_t> children = children_of(getpid());
  std::erase_if(children,
                [this](pid_t child) { return std::ranges::binary_search(spared_, child); });
  return children;
}

}  // namespace bluefog::bfrun
