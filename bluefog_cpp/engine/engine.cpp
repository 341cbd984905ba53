#include "bluefog_cpp/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "bluefog_cpp/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bluefog {
namespace {

/// Operations of more bytes, were there any, would take memory anew each time.
constexpr std::size_t kLargestOperation = 16384;

/// How often messages of failed calls are looked for while nobody drives.
constexpr std::chrono::milliseconds kFailedCallsPeriod{10};

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Engine::Engine(EngineParts parts)
    : policy_(parts.policy),
      log_(std::move(parts.log)),
      family_(std::move(parts.family)),
      operation_pool_(std::make_shared<std::pmr::synchronized_pool_resource>(std::pmr::pool_options{
          .max_blocks_per_chunk = 0, .largest_required_pool_block = kLargestOperation})),
      peers_(parts.rank, parts.size, std::move(parts.transports), std::move(parts.routes)),
      ledger_(peers_, queue_),
      records_(std::move(parts.timeline), std::move(parts.recorder), parts.recorded_context),
      stalls_(peers_, queue_, *this, family_),
      hopeless_(peers_, queue_, *this, family_),
      sleepers_(parts.doorbell),
      background_([this] { run_progress_thread(); }),
      driver_({.peers = peers_,
               .queue = queue_,
               .ledger = ledger_,
               .records = records_,
               .stalls = stalls_,
               .hopeless = hopeless_,
               .sleepers = sleepers_,
               .background = background_}) {
  peers_.ring(&sleepers_.doorbell());
  if (family_) {
    family_->add(*this);
  }
}

Engine::~Engine() {
  if (family_) {
    family_->remove(*this);
  }
  close();
}

void Engine::throw_forked(std::string_view call) const {
  throw StateError(
      fmt::format("rank {}, {}: expected the process of that rank, found a fork of it, which "
                  "cannot communicate",
                  peers_.rank(), call));
}

void Engine::check_home(const Operation& operation) const {
  if (is_forked()) {
    throw_forked(name_of(operation.envelope().kind));
  }
}

Work Engine::submit(std::shared_ptr<Operation> operation) {
  check_home(*operation);
  note_caller();
  Lock lock(mutex_);
  enqueue(*operation, operation);
  while (driver_.step_all()) {
  }
  if (present_.load(std::memory_order_relaxed) == 0) {
    hand_over();
  }
  lock.unlock();
  return {shared_from_this(), std::move(operation)};
}

void Engine::run(Operation& operation) { run_by(policy_, operation); }

void Engine::run(Operation& operation, std::chrono::milliseconds timeout) {
  run_by(policy_of(timeout), operation);
}

void Engine::run_by(const WaitPolicy& policy, Operation& operation) {
  check_home(operation);
  note_caller();
  Lock lock(mutex_);
  enqueue(operation, nullptr);
  drive_to_end(lock, operation, policy);
}

WaitPolicy Engine::policy_of(std::chrono::milliseconds timeout) const {
  WaitPolicy policy = policy_;
  policy.timeout = timeout;
  policy.timeout_name = "the timeout of this call";
  return policy;
}

void Engine::wait(Operation& operation) {
  if (CallState::of(operation).phase.load(std::memory_order_acquire) ==
      CallState::Phase::Complete) {
    return;
  }
  check_home(operation);
  note_caller();
  Lock lock(mutex_);
  drive_to_end(lock, operation, policy_);
}

void Engine::wait(Operation& operation, std::chrono::milliseconds timeout) {
  check_home(operation);
  note_caller();
  Lock lock(mutex_);
  drive_to_end(lock, operation, policy_of(timeout));
}

bool Engine::attend(Operation& operation, Waiter& waiter, Waiter::Clock::time_point end) {
  check_home(operation);
  Lock lock(mutex_);
  drive(lock, operation, waiter, end);
  return is_done(operation);
}

void Engine::enqueue(Operation& operation, std::shared_ptr<Operation> owner) {
  if (closed_) {
    throw StateError(fmt::format("rank {}, {}: the context is closed", peers_.rank(),
                                 operation.envelope().describe()));
  }
  driver_.enqueue(operation, std::move(owner));
}

void Engine::drive_to_end(Lock& lock, Operation& operation, const WaitPolicy& policy) {
  Waiter waiter(policy);
  drive(lock, operation, waiter);
  const CallState& call = CallState::of(operation);
  if (call.phase.load(std::memory_order_relaxed) == CallState::Phase::Failed) {
    std::rethrow_exception(call.error);
  }
}

void Engine::drive(Lock& lock, Operation& operation, Waiter& waiter,
                   Waiter::Clock::time_point end) {
  struct DriverCount {
    Engine& engine;
    Operation& operation;
    DriverCount(Engine& e, Operation& o) : engine(e), operation(o) {
      ++engine.drivers_;
      ++CallState::of(operation).waiters;
    }
    ~DriverCount() {
      if (std::exchange(engine.shows_wait_, false)) {
        engine.peers_.note_wait({});
      }
      --engine.drivers_;
      --CallState::of(operation).waiters;
      if (engine.drivers_ == 0) {
        engine.hand_over();
      }
    }
  };
  const CallState& call = CallState::of(operation);
  {
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
    if (!queue_.empty()) {
      queue_.remove_finished();  // the operation may be on the stack
    }
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
  const std::uint64_t progress = operation == nullptr ? 0 : queue_.progress_of(*operation);
  if (!waiter.check_due(Waiter::Clock::now(), progress)) {
    return;
  }
  driver_.fail_calls_on_dead_peers();
  driver_.fail_unmatched_calls();
  if (operation != nullptr && !is_done(*operation)) {
    check_wait(lock, waiter, *operation);
  }
}

void Engine::check_wait(Lock& lock, Waiter& waiter, Operation& operation) {
  if (waiter.warning_due()) {
    records_.write_flight_record(queue_, "a call has stalled");
    log_.warning(stalls_.warning(operation, waiter.stalled()));
  }
  if (waiter.timed_out()) {
    ledger_.note_abandonment();
    driver_.fail(operation, stalls_.timeout_error(operation, waiter.policy()),
                 ControlMessage::Kind::Abandoned);
    return;
  }
  shows_wait_ = hopeless_.show_wait(operation) || shows_wait_;
  // Another thread may be about to make its first call, which would end the wait.
  const auto patience =
      std::min<std::chrono::milliseconds>(HopelessCalls::kPatience, waiter.policy().timeout / 2);
  const auto found =
      waiter.stalled() < patience ? std::nullopt : hopeless_.find_deadlock(operation);
  if (found) {
    // The other rank hears of this call's end before it can come here.
    driver_.fail(operation, std::make_exception_ptr(MismatchError(found->text)),
                 ControlMessage::Kind::Abandoned);
    found->engine->tell_deadlock(found->rank, found->call, found->text);
    return;
  }
  if (!waiter.interrupt_due()) {
    return;
  }
  const std::exception_ptr interruption = interrupt_check_.run(lock);
  if (interruption && !is_done(operation)) {
    driver_.fail(operation, interruption, ControlMessage::Kind::Abandoned);
  }
}

bool Engine::sleep(Lock& lock, Waiter& waiter, const Operation* operation) {
  const Doorbell::Sleeper sleeper(sleepers_.doorbell());
  const auto longest = waiter.sleep_time(driver_.needs_polling());
  for (const auto time : {std::min(longest, Doorbell::kFirstSleep), longest}) {
    const std::uint32_t ticket = sleeper.ticket();
    if (driver_.step_all() || driver_.drop_messages_of_failed_calls()) {
      waiter.moved();
      return false;
    }
    if (operation != nullptr && is_done(*operation)) {
      return false;
    }
    peers_.watch(Transport::Watch::ForSleeper);
    if (sleepers_.sleep(lock, sleeper, ticket, time) || closed_) {
      break;
    }
  }
  return true;
}

void Engine::hand_over() {
  if (driver_.has_work()) {
    background_.wake();
  } else {
    peers_.watch(Transport::Watch::AtRest);
  }
}

void Engine::run_progress_thread() {
  Lock lock(mutex_);
  Waiter waiter = Waiter::background(policy_);
  while (!background_.is_stopped()) {
    if (drivers_ > 0 || !driver_.has_work()) {
      if (!ledger_.has_failed_calls()) {
        background_.rest(lock);
      } else {
        background_.rest(lock, kFailedCallsPeriod);
        if (drivers_ == 0 && !background_.is_stopped()) {
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
}

void Engine::refuse(std::string_view reason, int partner) {
  if (is_forked()) {
    return;
  }
  const Lock lock(mutex_);
  if (!closed_) {
    driver_.refuse(reason, partner);
  }
}

void Engine::count_larger_calls(int change) {
  const Lock lock(mutex_);
  ledger_.count_larger_calls(change);
}

// What was started, and not waited for after all, goes on.
void Engine::count_present(int change) {
  const bool is_last = present_.fetch_add(change, std::memory_order_relaxed) + change == 0;
  if (change < 0 && is_last) {
    const Lock lock(mutex_);
    if (!closed_ && drivers_ == 0 && driver_.has_work()) {
      hand_over();
    }
  }
}

void Engine::attach(std::shared_ptr<ProgressHook> progress_hook) {
  const Lock lock(mutex_);
  driver_.attach(std::move(progress_hook));
}

void Engine::set_interrupt_check(std::function<void()> check) {
  const Lock lock(mutex_);
  interrupt_check_.set(std::move(check));
}

void Engine::check_interrupt() {
  Lock lock(mutex_);
  const auto check = interrupt_check_.get();
  lock.unlock();
  if (check) {
    check();
  }
}

void Engine::record_stall(std::string_view reason) {
  const Lock lock(mutex_);
  records_.write_flight_record(queue_, reason);
}

bool Engine::is_closed() {
  if (is_forked()) {
    return true;
  }
  const Lock lock(mutex_);
  return closed_;
}

const Transport& Engine::transport_to(int peer) {
  if (is_forked()) {
    throw_forked("transport_to");
  }
  const Lock lock(mutex_);
  if (closed_) {
    throw StateError(fmt::format("rank {}: the context is closed", peers_.rank()));
  }
  return *peers_.route_to(peer);
}

void Engine::close() noexcept {
  Lock lock(mutex_);
  if (!std::exchange(closed_, true)) {
    background_.stop();
    driver_.fail_all([this](const Operation& operation) {
      return std::make_exception_ptr(
          StateError(fmt::format("rank {}, {}: the context was closed before it completed",
                                 peers_.rank(), operation.envelope().describe())));
    });
    if (const std::string late = ledger_.take_late_mismatch(); !late.empty()) {
      log_.error(late);  // no further call comes to throw it
    }
  }
  sleepers_.wake_always();
  const int own_drivers = interrupt_check_.is_running_here() ? 1 : 0;
  while (drivers_ > own_drivers) {  // they see that their calls have failed
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  lock.unlock();
  background_.join();
  lock.lock();
  peers_.ring(nullptr);
  sleepers_.leave_shared_doorbell();
  driver_.detach();
  peers_.close();
}

}  // namespace bluefog
