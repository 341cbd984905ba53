#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "tools/bfrun/job/descendants.hpp"
#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/process.hpp"

namespace bluefog::bfrun {

/// The signal by which the kernel tells a watcher that the process that started it has died.
[[nodiscard]] int parent_died_signal();

/// The signal by which bfrun has a watcher tell its rank to leave the others: SIGTERM to the command
/// alone, whose loaders live on.
[[nodiscard]] int leave_signal();

/// The signal by which bfrun has a watcher kill its rank, of whose end it then reports.
[[nodiscard]] int kill_signal();

/// Blocks all signals that come from elsewhere; returns what was blocked before.
sigset_t block_signals_to_watch();

/// Waits for the end of a rank's command, and ends what it has started.
class Watcher {
 public:
  struct Rank {
    pid_t command = -1;
    pid_t parent = -1;  ///< mpirun, or its daemon on this host
    int exit_note = -1;
    int bfrun = -1;  ///< readable once bfrun has ended; −1 where that is not to be known
    /// Signals for the rank, a byte each, from a bfrun on another host; its end is that of bfrun.
    int control = -1;
    std::string session = {};  ///< the folder to remove when bfrun was killed, or empty
  };

  /// @param on_exit_note called when the command says that it leaves or exits.
  /// @param on_joining called when the command, or what it has started, begins to join the others.
  /// @param on_departure called when it has left them, who go on.
  Watcher(Rank rank, const Descendants& descendants, std::function<void()> on_exit_note,
          std::function<void()> on_joining, std::function<void()> on_departure);

  /// Waits for the end of the command, passing on the signals that reach this process.
  ///
  /// A command that has announced its exit and is still there `kExitGrace` later waits for other
  /// ranks, which need not know: it is killed, and its end is the exit that it has announced. When
  /// mpirun, its daemon or bfrun has ended, so does this process, with all that the rank started.
  [[nodiscard]] ExitStatus wait_for_end();

  /// Ends what the command has left behind: it may hold pipes that mpirun reads to their end.
  void end_descendants() const;

  /// Whether mpirun has sent a signal that ends programs.
  [[nodiscard]] bool told_to_end() const { return told_to_end_; }

  static constexpr std::chrono::milliseconds kExitGrace{3000};

 private:
  using Clock = std::chrono::steady_clock;

  struct Signal {
    int number;
    pid_t sender;
  };

  /// All that have come. Returns the end of the command where it has ended.
  [[nodiscard]] std::optional<ExitStatus> take_signals();
  [[nodiscard]] std::optional<ExitStatus> take(const Signal& signal);
  [[nodiscard]] std::optional<ExitStatus> status_of_command() const;
  [[nodiscard]] bool was_killed_by_other_than(int number) const;
  [[nodiscard]] int time_left(Clock::time_point now) const;
  void act_on_time(Clock::time_point now);
  void take_exit_note();
  void take_control();
  void tell_to_leave();
  void pass_on(const Signal& signal);
  [[noreturn]] void end_after_bfrun() const;
  [[noreturn]] void end_all() const;

  Rank rank_;
  const Descendants& descendants_;
  std::function<void()> on_exit_note_;
  std::function<void()> on_joining_;
  std::function<void()> on_departure_;
  Descriptor signals_;
  bool told_to_end_ = false;
  std::optional<int> announced_code_;
  std::optional<Clock::time_point> kill_command_at_;
  std::optional<Clock::time_point> kill_strangers_at_;
};

}  // namespace bluefog::bfrun
