#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/own/own_launcher.hpp"
#include "tools/bfrun/job/process.hpp"

namespace bluefog::bfrun {

/// The processes that watch the ranks of bfrun's own launcher, and how they are ended.
class RankWatchers {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RankWatchers(const OwnRanks& ranks);

  /// @param control of a rank on another host: `Watcher::Rank::control`.
  void add(pid_t process, int rank, Descriptor control = Descriptor()) {
    running_[process] = {.rank = rank, .control = std::move(control)};
  }
  [[nodiscard]] bool are_gone() const { return running_.empty(); }
  [[nodiscard]] bool has(int rank) const {
    return std::ranges::any_of(running_,
                               [rank](const auto& entry) { return entry.second.rank == rank; });
  }
  /// Whether the job ends before its time: nobody is started any more.
  [[nodiscard]] bool are_to_end() const { return is_ending_ || end_at_.has_value(); }

  /// The first failure that counts, or success, also where enough have ended well.
  [[nodiscard]] ExitStatus status() const;

  struct EndedRank {
    int rank = 0;
    ExitStatus end;
  };
  /// Another child that is gone.
  using OnOther = std::function<void(pid_t, const ExitStatus&)>;
  /// Waits for those that are gone, and returns them.
  [[nodiscard]] std::vector<EndedRank> reap(const OnOther& on_other);
  /// A failure counts: the rank is not started again. Without it there may be too few.
  void count(const ExitStatus& failure);
  /// The job has a rank more, or one fewer, which has left.
  void expect(int more);

  void pass_on(int signal_number);
  /// Has the watcher of `rank` tell it to leave.
  void tell_to_leave(int rank) const;
  /// Has the watcher of `rank` kill it, and report that.
  void have_killed(int rank) const;
  /// Kills `rank` with its watcher.
  void kill_rank(int rank) const;
  void kill_all() const;
  /// SIGTERM now, SIGKILL `kEndGrace` later.
  void begin_end();

  /// The time until there is something to do; negative: nothing.
  [[nodiscard]] std::chrono::milliseconds time_left(Clock::time_point now) const;
  /// @param spare_others as `ChildCare::spare_others`.
  void act_on_time(Clock::time_point now, bool spare_others);

 private:
  /// To the watcher alone. @param number that watchers know.
  void tell(int rank, int number) const;
  void signal_all(int number) const;
  [[nodiscard]] bool are_enough() const { return expected_ - failures_ >= enough_; }
  void end_soon();

  bool fault_tolerant_;
  int enough_;  ///< so many suffice; 0: that is not counted
  int expected_;
  int failures_ = 0;
  struct Running {
    int rank = 0;
    Descriptor control;
  };
  static void send(pid_t watcher, const Running& running, int number);

  std::map<pid_t, Running> running_;
  ExitStatus first_failure_;
  bool is_ending_ = false;
  bool has_killed_ = false;
  std::optional<Clock::time_point> end_at_;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace bluefog::bfrun
