// Who drives the engine: callers that wait, and the progress thread for calls that nobody waits
// for.
#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "bluefog_cpp/engine/engine.hpp"

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

thread_local const Engine* Engine::in_interrupt_check_ = nullptr;

void Engine::drive(Lock& lock, Operation& operation) {
  struct DriverCount {
    Engine& engine;
    Operation& operation;
    DriverCount(Engine& e, Operation& o) : engine(e), operation(o) {
      ++engine.drivers_;
      ++operation.call_.waiters;
    }
    ~DriverCount() {
      --engine.drivers_;
      --operation.call_.waiters;
      if (engine.drivers_ == 0 && engine.has_background_work()) {
        engine.start_progress_thread();
        engine.work_to_drive_.notify_one();
      }
    }
  };
  {
    const DriverCount count(*this, operation);
    Waiter waiter(parts_.policy);
    while (!is_done(operation)) {
      if (step_all()) {
        waiter.moved();
      } else if (!is_done(operation)) {
        pause(lock, waiter, &operation);
      }
    }
    if (!active_.empty()) {
      remove_finished();  // the operation may be on the stack
    }
  }
  if (operation.call_.phase.load(std::memory_order_relaxed) == CallState::Phase::Failed) {
    std::rethrow_exception(operation.call_.error);
  }
}

void Engine::pause(Lock& lock, Waiter& waiter, Operation* operation) {
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
  if (!waiter.check_due(Waiter::Clock::now(), operation == nullptr ? 0 : progress_of(*operation))) {
    return;
  }
  fail_calls_on_dead_peers();
  if (operation == nullptr || is_done(*operation)) {
    return;
  }
  if (waiter.warning_due()) {
    warn_of_stall(*operation, waiter.stalled());
  }
  if (waiter.timed_out()) {
    given_up_ = true;
    fail(*operation, timeout_error(*operation), ControlMessage::Kind::GivenUp);
    return;
  }
  if (interrupt_check_) {
    const auto check = interrupt_check_;
    std::exception_ptr interruption;
    lock.unlock();
    in_interrupt_check_ = this;
    try {
      check();
    } catch (...) {
      interruption = std::current_exception();
    }
    in_interrupt_check_ = nullptr;
    lock.lock();
    if (interruption && !is_done(*operation)) {
      fail(*operation, interruption, ControlMessage::Kind::GivenUp);
    }
  }
}

// Of the call and of those that it may stand behind, which are made with the same ranks: words of
// other ranks are no progress, and neither are calls that they make with this one alone.
std::uint64_t Engine::progress_of(const Operation& operation) const noexcept {
  std::uint64_t progress = 0;
  for (const Active& active : active_) {
    if (active.operation->partner() != operation.partner()) {
      continue;
    }
    progress += 1 + active.operation->call_.moves;  // changes also when an earlier call ends
    if (active.operation == &operation) {
      break;
    }
  }
  return progress;
}

bool Engine::sleep(Lock& lock, Waiter& waiter, const Operation* operation) {
  const Doorbell::Sleeper sleeper(*doorbell_);
  const auto longest = waiter.sleep_time(needs_polling());
  for (const auto time : {std::min(longest, Doorbell::kFirstSleep), longest}) {
    const std::uint32_t ticket = sleeper.ticket();
    if (step_all() || drop_messages_of_failed_calls()) {
      waiter.moved();
      return false;
    }
    if (operation != nullptr && is_done(*operation)) {
      return false;
    }
    ++sleepers_;
    lock.unlock();
    const bool has_rung = sleeper.sleep(ticket, time);
    lock.lock();
    --sleepers_;
    if (has_rung || closed_) {
      break;
    }
  }
  return true;
}

bool Engine::needs_polling() const noexcept {
  return (attendant_ && attendant_->is_busy()) ||
         std::ranges::any_of(parts_.transports,
                             [](const auto& transport) { return transport->needs_polling(); }) ||
         std::ranges::any_of(active_, [](const Active& active) {
           return active.operation->call_.is_staged && !is_done(*active.operation);
         });
}

bool Engine::has_background_work() const noexcept {
  if (attendant_ && attendant_->is_busy()) {
    return true;
  }
  if (std::ranges::any_of(parts_.transports,
                          [](const auto& transport) { return transport->has_pending(); })) {
    return true;
  }
  return !retractions_.empty() || std::ranges::any_of(active_, [](const Active& active) {
    const CallState& call = active.operation->call_;
    const bool rests = call.consumption == Consumption::OnWait && call.waiters == 0 && call.last &&
                       call.exchange.published() && call.exchange.has_come() &&
                       !active.is_dropped();
    return !is_done(*active.operation) && !rests;
  });
}

void Engine::start_progress_thread() {
  if (!progress_thread_.joinable() && !closed_) {
    progress_thread_ = std::thread([this] { run_progress_thread(); });
  }
}

void Engine::run_progress_thread() {
  Lock lock(mutex_);
  Waiter waiter = Waiter::background(parts_.policy);
  while (!closed_) {
    if (drivers_ > 0 || !has_background_work()) {
      if (failed_calls_.empty()) {
        work_to_drive_.wait(lock);
      } else {
        work_to_drive_.wait_for(lock, kFailedCallsPeriod);
        if (drivers_ == 0 && !closed_) {
          step_all();
          drop_messages_of_failed_calls();
        }
      }
      waiter = Waiter::background(parts_.policy);
    } else if (step_all()) {
      waiter.moved();
    } else {
      pause(lock, waiter, nullptr);
    }
  }
}

}  // namespace bluefog
