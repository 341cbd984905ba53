#include "bluefog_cpp/engine/engine.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// Operations of more bytes, were there any, would take memory anew each time.
constexpr std::size_t kLargestOperation = 16384;

}  // namespace

Engine::Engine(EngineParts parts)
    : policy_(parts.policy),
      log_(std::move(parts.log)),
      family_(std::move(parts.family)),
      operation_pool_(std::make_shared<std::pmr::synchronized_pool_resource>(std::pmr::pool_options{
          .max_blocks_per_chunk = 0, .largest_required_pool_block = kLargestOperation})),
      peers_(parts.rank, parts.size, std::move(parts.transports), std::move(parts.routes)),
      ledger_(peers_, queue_),
      revocation_(peers_, parts.losses_revoke),
      records_(std::move(parts.timeline), std::move(parts.recorder), parts.recorded_context),
      stalls_(peers_, queue_, *this, family_),
      hopeless_(peers_, queue_, *this, family_),
      sleepers_(parts.doorbell),
      background_([this] {
        Lock lock(mutex_);
        loop_.drive_in_background(lock);
      }),
      driver_({.peers = peers_,
               .queue = queue_,
               .ledger = ledger_,
               .revocation = revocation_,
               .step_news = step_news_,
               .records = records_,
               .stalls = stalls_,
               .hopeless = hopeless_,
               .sleepers = sleepers_,
               .background = background_}),
      loop_(driver_, policy_, log_) {
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
  where_memory_allows([this] {  // whoever waits for it looks again
    while (driver_.step_all()) {
    }
  });
  loop_.note_start();
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
  loop_.drive(lock, operation, waiter, end);
  return is_done(operation);
}

void Engine::enqueue(Operation& operation, std::shared_ptr<Operation> owner) {
  if (closed_) {
    throw StateError(fmt::format("rank {}, {}: the context is closed", peers_.rank(),
                                 operation.envelope().describe()));
  }
  if (revocation_.is_known()) [[unlikely]] {
    std::rethrow_exception(revocation_.error(operation.envelope().describe()));
  }
  driver_.enqueue(operation, std::move(owner));
}

void Engine::drive_to_end(Lock& lock, Operation& operation, const WaitPolicy& policy) {
  Waiter waiter(policy);
  loop_.drive(lock, operation, waiter);
  const CallState& call = CallState::of(operation);
  if (call.phase.load(std::memory_order_relaxed) == CallState::Phase::Failed) {
    std::rethrow_exception(call.error);
  }
}

void Engine::refuse(std::string_view reason, int partner) {
  if (is_forked()) {
    return;
  }
  const Lock lock(mutex_);
  if (!closed_ && !revocation_.is_known()) {
    driver_.refuse(reason, partner);
  }
}

void Engine::count_larger_calls(int change) {
  const Lock lock(mutex_);
  ledger_.count_larger_calls(change);
}

void Engine::count_present(int change) {
  if (loop_.count_present(change)) {
    const Lock lock(mutex_);
    loop_.note_absence();
  }
}

void Engine::attach(std::shared_ptr<ProgressHook> progress_hook) {
  const Lock lock(mutex_);
  driver_.attach(std::move(progress_hook));
}

void Engine::set_interrupt_check(std::function<void()> check) {
  const Lock lock(mutex_);
  loop_.interrupt_check().set(std::move(check));
}

void Engine::check_interrupt() {
  Lock lock(mutex_);
  const auto check = loop_.interrupt_check().get();
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
  loop_.await_drivers(lock);
  lock.unlock();
  background_.join();
  lock.lock();
  peers_.ring(nullptr);
  sleepers_.leave_shared_doorbell();
  driver_.detach();
  peers_.close();
}

}  // namespace bluefog
