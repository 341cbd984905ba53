#pragma once

#include <atomic>
#include <mutex>

#include "bluefog_cpp/engine/call_driver.hpp"
#include "bluefog_cpp/engine/call_ledger.hpp"
#include "bluefog_cpp/engine/call_queue.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/engine/peers.hpp"
#include "bluefog_cpp/engine/progress/interrupt_check.hpp"
#include "bluefog_cpp/engine/progress/progress_thread.hpp"
#include "bluefog_cpp/engine/progress/sleepers.hpp"
#include "bluefog_cpp/engine/records/call_records.hpp"
#include "bluefog_cpp/engine/records/hopeless_calls.hpp"
#include "bluefog_cpp/engine/records/stall_report.hpp"
#include "bluefog_cpp/engine/waiter.hpp"
#include "bluefog_cpp/log.hpp"

namespace bluefog {

/// The threads that drive the calls of one context: callers that wait for a call, and the progress
/// thread while none does. A wait that lasts too long ends here.
///
/// Used under the engine's mutex, which `lock` holds; no thread sleeps while it holds the mutex.
class ProgressLoop {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// @param driver with its parts, which outlive this object.
  /// @param policy how the progress thread waits.
  ProgressLoop(CallDriver& driver, const WaitPolicy& policy, const Logger& log)
      : driver_(driver), parts_(driver.parts()), policy_(policy), log_(log) {}
  ProgressLoop(const ProgressLoop&) = delete;
  ProgressLoop& operator=(const ProgressLoop&) = delete;

  /// Drives all calls until `operation` is done, or until about `end`.
  void drive(Lock& lock, Operation& operation, Waiter& waiter,
             Waiter::Clock::time_point end = Waiter::Clock::time_point::max());
  /// The body of the progress thread: drives calls while no caller does, until it is stopped.
  void drive_in_background(Lock& lock);

  /// A call was started: wakes the progress thread for it, unless its caller is about to wait.
  void note_start() {
    if (present_.load(std::memory_order_relaxed) == 0) {
      hand_over();
    }
  }
  /// Counts callers that are about to wait for what they start. Without the mutex.
  /// @return whether the last one has gone, so that `note_absence` is due.
  [[nodiscard]] bool count_present(int change) noexcept {
    return present_.fetch_add(change, std::memory_order_relaxed) + change == 0 && change < 0;
  }
  /// Calls that were started, and not waited for after all, go on.
  void note_absence();

  [[nodiscard]] InterruptCheck& interrupt_check() noexcept { return interrupt_check_; }

  /// Waits until no caller drives any more, but for this thread in an interrupt check. All calls
  /// have ended.
  void await_drivers(Lock& lock) const;

 private:
  class DriverCount;

  void drive_to_end(Lock& lock, Operation& operation, Waiter& waiter,
                    Waiter::Clock::time_point end);
  void step_in_background(Lock& lock, Waiter& waiter);

  /// Wakes the progress thread if there is something for it to drive.
  void hand_over();
  void pause(Lock& lock, Waiter& waiter, Operation* operation);
  /// Sleeps until something may have moved. @return false when something has, without a sleep.
  bool sleep(Lock& lock, Waiter& waiter, const Operation* operation);
  /// Looks now and then whether the wait for `operation` must end; ends it then.
  void check_wait(Lock& lock, Waiter& waiter, Operation& operation);
  /// @return whether another rank waits for this one in a related context, so that the call failed.
  bool fail_deadlocked(const Waiter& waiter, Operation& operation);

  CallDriver& driver_;
  CallDriver::Parts parts_;
  const WaitPolicy& policy_;
  const Logger& log_;
  InterruptCheck interrupt_check_;
  /// Callers that wait, and those that are about to.
  int drivers_ = 0;
  std::atomic<int> present_{0};
  /// The other ranks were shown whom this one waits for.
  bool shows_wait_ = false;
};

}  // namespace bluefog
