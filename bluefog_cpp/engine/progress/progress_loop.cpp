#include "bluefog_cpp/engine/progress/progress_loop.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/base/prepare_to_throw.hpp"
#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bluefog {
namespace {

/// How often messages of failed calls are looked for while nobody drives.
constexpr std::chrono::milliseconds kFailedCallsPeriod{10};

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

/// A caller that drives until it has what it waits for; the last one hands over.
class ProgressLoop::DriverCount {
 public:
  DriverCount(ProgressLoop& loop, Operation& operation) : loop_(loop), operation_(operation) {
    ++loop_.drivers_;
    ++CallState::of(operation_).waiters;
  }
  DriverCount(const DriverCount&) = delete;
  DriverCount& operator=(const DriverCount&) = delete;
  ~DriverCount() {
    if (std::exchange(loop_.shows_wait_, false)) {
      loop_.parts_.peers.note_wait({});
    }
    --loop_.drivers_;
    --CallState::of(operation_).waiters;
    if (loop_.drivers_ == 0) {
      loop_.hand_over();
    }
  }

 private:
  ProgressLoop& loop_;
  Operation& operation_;
};

void ProgressLoop::drive(Lock& lock, Operation& operation, Waiter& waiter,
                         Waiter::Clock::time_point end) {
  try {
    drive_to_end(lock, operation, waiter, end);
  } catch (...) {  // as out of memory: nothing of the call may outlast its caller
    if (!CallState::of(operation).is_done()) {
      driver_.fail(operation, std::current_exception());
    }
  }
  if (!parts_.queue.empty()) {
    parts_.queue.remove_finished();  // the operation may be on the stack
  }
}

void ProgressLoop::drive_to_end(Lock& lock, Operation& operation, Waiter& waiter,
                                Waiter::Clock::time_point end) {
  const CallState& call = CallState::of(operation);
  const DriverCount count(*this, operation);
  const bool has_end = end != Waiter::Clock::time_point::max();
  while (!call.is_done()) {
    if (driver_.step_all()) {
      waiter.moved();
    } else if (has_end && Waiter::Clock::now() >= end) {
      return;
    } else if (!call.is_done()) {
      pause(lock, waiter, &operation);
    }
  }
}

void ProgressLoop::drive_in_background(Lock& lock) {
  prepare_to_throw();
  ProgressThread& thread = parts_.background;
  Waiter waiter = Waiter::background(policy_);
  while (!thread.is_stopped()) {
    try {
      step_in_background(lock, waiter);
    } catch (const std::exception&) {  // as out of memory: whoever waits finds it too
      if (!lock.owns_lock()) {
        lock.lock();
      }
      if (!thread.is_stopped()) {
        thread.rest(lock, kFailedCallsPeriod);
      }
    }
  }
}

void ProgressLoop::step_in_background(Lock& lock, Waiter& waiter) {
  ProgressThread& thread = parts_.background;
  if (drivers_ > 0 || !driver_.has_work()) {
    if (!parts_.ledger.has_failed_calls()) {
      thread.rest(lock);
    } else {
      thread.rest(lock, kFailedCallsPeriod);
      if (drivers_ == 0 && !thread.is_stopped()) {
        driver_.step_all();
        driver_.drop_messages_of_failed_calls();
      }
    }
    waiter = Waiter::background(policy_);
  } else if (driver_.step_all()) {
    waiter.moved();
  } else {
    pause(lock, waiter, nullptr);
  }
}

void ProgressLoop::hand_over() {
  if (driver_.has_work()) {
    parts_.background.wake();
  } else {
    parts_.peers.watch(Transport::Watch::AtRest);
  }
}

void ProgressLoop::note_absence() {
  if (drivers_ == 0 && driver_.has_work()) {
    parts_.background.wake();
  }
}

void ProgressLoop::pause(Lock& lock, Waiter& waiter, Operation* operation) {
  switch (waiter.next()) {
    case Waiter::Step::Spin:
      relax();
      if (!waiter.clock_due()) {
        return;
      }
      break;
    case Waiter::Step::Yield:
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      break;
    case Waiter::Step::Sleep:
      if (!sleep(lock, waiter, operation)) {
        return;
      }
      break;
  }
  const std::uint64_t progress = operation == nullptr ? 0 : parts_.queue.progress_of(*operation);
  if (!waiter.check_due(Waiter::Clock::now(), progress)) {
    return;
  }
  driver_.fail_calls_on_dead_peers();
  driver_.fail_unmatched_calls();
  if (operation != nullptr && !CallState::of(*operation).is_done()) {
    check_wait(lock, waiter, *operation);
  }
}

bool ProgressLoop::sleep(Lock& lock, Waiter& waiter, const Operation* operation) {
  const Doorbell::Sleeper sleeper(parts_.sleepers.doorbell());
  const auto longest = waiter.sleep_time(driver_.needs_polling());
  for (const auto time : {std::min(longest, Doorbell::kFirstSleep), longest}) {
    const std::uint32_t ticket = sleeper.ticket();
    if (driver_.step_all() || driver_.drop_messages_of_failed_calls()) {
      waiter.moved();
      return false;
    }
    if (operation != nullptr && CallState::of(*operation).is_done()) {
      return false;
    }
    parts_.peers.watch(Transport::Watch::ForSleeper);
    if (parts_.sleepers.sleep(lock, sleeper, ticket, time) || parts_.background.is_stopped()) {
      break;
    }
  }
  return true;
}

void ProgressLoop::check_wait(Lock& lock, Waiter& waiter, Operation& operation) {
  if (waiter.warning_due()) {
    parts_.records.write_flight_record(parts_.queue, "a call has stalled");
    log_.warning(parts_.stalls.warning(operation, waiter.stalled()));
  }
  if (waiter.timed_out()) {
    parts_.ledger.note_abandonment();
    const std::exception_ptr error = parts_.stalls.timeout_error(operation, waiter.policy());
    const bool is_callers_own = waiter.policy().timeout_name != policy_.timeout_name;
    if (is_callers_own || !driver_.give_up_the_late(operation, message_of(error))) {
      driver_.fail(operation, error, ControlMessage::Kind::Abandoned);
    }
    return;
  }
  shows_wait_ = parts_.hopeless.show_wait(operation) || shows_wait_;
  if (fail_deadlocked(waiter, operation) || !waiter.interrupt_due()) {
    return;
  }
  const std::exception_ptr interruption = interrupt_check_.run(lock);
  if (interruption && !CallState::of(operation).is_done()) {
    driver_.fail(operation, interruption, ControlMessage::Kind::Abandoned);
  }
}

bool ProgressLoop::fail_deadlocked(const Waiter& waiter, Operation& operation) {
  // Another thread may be about to make its first call, which would end the wait.
  const auto patience =
      std::min<std::chrono::milliseconds>(HopelessCalls::kPatience, waiter.policy().timeout / 2);
  const auto found =
      waiter.stalled() < patience ? std::nullopt : parts_.hopeless.find_deadlock(operation);
  if (found) {
    // The other rank learns of this call's end before it can come here.
    driver_.fail(operation, std::make_exception_ptr(MismatchError(found->text)),
                 ControlMessage::Kind::Abandoned);
    found->engine->report_deadlock(found->rank, found->call, found->text);
  }
  return found.has_value();
}

void ProgressLoop::await_drivers(Lock& lock) const {
  const int own_drivers = interrupt_check_.is_running_here() ? 1 : 0;
  while (drivers_ > own_drivers) {  // they see that their calls have failed
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
}

}  // namespace bluefog
