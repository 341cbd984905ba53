#include "tools/bfrun/job/rank_watchers.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tools/bfrun/job/signal_watch.hpp"
#include "tools/bfrun/rank/watcher.hpp"

namespace bluefog::bfrun {

using std::chrono::milliseconds;

RankWatchers::RankWatchers(const OwnRanks& ranks)
    : fault_tolerant_(ranks.fault_tolerant), enough_(ranks.enough), expected_(ranks.count) {}

ExitStatus RankWatchers::status() const {
  return enough_ > 0 && are_enough() && !is_ending_ ? ExitStatus{} : first_failure_;
}

std::vector<RankWatchers::EndedRank> RankWatchers::reap(const OnOther& on_other) {
  std::vector<EndedRank> ended;
  int status = 0;
  for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto watcher = running_.extract(child);
    const ExitStatus end = ExitStatus::from_wait(status);
    if (watcher.empty()) {
      on_other(child, end);  // what a rank has left behind, for one
    } else {
      ended.push_back({watcher.mapped().rank, end});
    }
  }
  return ended;
}

void RankWatchers::count(const ExitStatus& failure) {
  if (first_failure_.code == 0) {
    first_failure_.code = failure.shell_code();
  }
  ++failures_;
  if (!(enough_ > 0 ? are_enough() : fault_tolerant_ && failure.killed_by != 0)) {
    end_soon();
  }
}

void RankWatchers::expect(int more) {
  expected_ += more;
  if (enough_ > 0 && !are_enough()) {
    end_soon();
  }
}

void RankWatchers::end_soon() {
  if (!end_at_) {
    end_at_ = Clock::now() + kSpareTime;
  }
}

void RankWatchers::tell_to_leave(int rank) const { tell(rank, leave_signal()); }

void RankWatchers::have_killed(int rank) const { tell(rank, kill_signal()); }

void RankWatchers::tell(int rank, int number) const {
  for (const auto& [watcher, running] : running_) {
    if (running.rank != rank) {
      continue;
    }
    if (running.control.get() >= 0) {
      send(watcher, running, number);
    } else {
      kill(watcher, number);  // not its group
    }
  }
}

void RankWatchers::kill_rank(int rank) const {
  for (const auto& [watcher, running] : running_) {
    if (running.rank == rank) {
      send(watcher, running, SIGKILL);
    }
  }
}

void RankWatchers::pass_on(int signal_number) {
  if (ends_programs(signal_number)) {
    begin_end();
  } else {
    signal_all(signal_number);
  }
}

void RankWatchers::kill_all() const { signal_all(SIGKILL); }

void RankWatchers::begin_end() {
  if (std::exchange(is_ending_, true)) {
    return;
  }
  kill_at_ = Clock::now() + kEndGrace;
  signal_all(SIGTERM);
}

milliseconds RankWatchers::time_left(Clock::time_point now) const {
  const auto due = is_ending_ ? kill_at_ : end_at_;
  if (!due || has_killed_) {
    return milliseconds(-1);
  }
  return std::max(std::chrono::ceil<milliseconds>(*due - now), milliseconds(0));
}

void RankWatchers::act_on_time(Clock::time_point now, bool spare_others) {
  if (!is_ending_ && end_at_ && (!spare_others || now >= *end_at_)) {
    begin_end();
  }
  if (!is_ending_ || has_killed_ || now < *kill_at_) {
    return;
  }
  has_killed_ = true;
  kill_all();
}

void RankWatchers::signal_all(int number) const {
  for (const auto& [watcher, running] : running_) {
    send(watcher, running, number);
  }
}

void RankWatchers::send(pid_t watcher, const Running& running, int number) {
  // Without its way to bfrun a watcher on another host kills its rank.
  if (running.control.get() < 0 || number == SIGKILL) {
    kill(-watcher, number);
    return;
  }
  const auto byte = static_cast<unsigned char>(number);
  if (write(running.control.get(), &byte, 1) != 1) {
    kill(-watcher, SIGKILL);  // nobody reads it
  }
}

}  // namespace bluefog::bfrun
