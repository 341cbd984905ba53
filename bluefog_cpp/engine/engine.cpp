#include "bluefog_cpp/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// Row of the timeline: the tensor's name, or else the operation's.
std::string_view lane_of(const Operation& operation) {
  const Envelope& envelope = operation.envelope();
  return envelope.name.empty() ? name_of(envelope.kind) : envelope.name;
}

/// Operations of more bytes, were there any, would take memory anew each time.
constexpr std::size_t kLargestOperation = 16384;

}  // namespace

Engine::Engine(EngineParts parts)
    : parts_(std::move(parts)),
      doorbell_(parts_.doorbell != nullptr ? parts_.doorbell : &own_doorbell_),
      operation_pool_(std::make_shared<std::pmr::synchronized_pool_resource>(
          std::pmr::pool_options{.max_blocks_per_chunk = 0,
                                 .largest_required_pool_block = kLargestOperation})),
      pair_calls_(static_cast<std::size_t>(parts_.size)),
      refusals_(static_cast<std::size_t>(parts_.size)) {
  if (parts_.relatives) {
    parts_.relatives->add(*this);
  }
}

Engine::~Engine() {
  if (parts_.relatives) {
    parts_.relatives->remove(*this);
  }
  close();
}

void Engine::throw_forked(std::string_view call) const {
  throw StateError(fmt::format(
      "rank {}, {}: expected the process of that rank, found a fork of it, which cannot communicate",
      parts_.rank, call));
}

void Engine::check_home(const Operation& operation) const {
  if (is_forked()) {
    throw_forked(name_of(operation.envelope().kind));
  }
}

Work Engine::submit(std::shared_ptr<Operation> operation) {
  check_home(*operation);
  Lock lock(mutex_);
  enqueue(*operation, operation);
  while (step_all()) {
  }
  if (has_background_work()) {
    start_progress_thread();
    work_to_drive_.notify_one();
  }
  lock.unlock();
  return {shared_from_this(), std::move(operation)};
}

void Engine::run(Operation& operation) {
  check_home(operation);
  Lock lock(mutex_);
  enqueue(operation, nullptr);
  drive(lock, operation);
}

void Engine::wait(Operation& operation) {
  if (operation.call_.phase.load(std::memory_order_acquire) == CallState::Phase::Complete) {
    return;
  }
  check_home(operation);
  Lock lock(mutex_);
  drive(lock, operation);
}

void Engine::enqueue(Operation& operation, std::shared_ptr<Operation> owner) {
  if (closed_) {
    throw StateError(fmt::format("rank {}, {}: the context is closed", parts_.rank,
                                 operation.envelope().describe()));
  }
  operation.call_.index = take_index(operation.partner());
  for (const auto& transport : parts_.transports) {
    transport->note_call(CallId::make(operation.call_.index, 0), operation.envelope().kind);
  }
  active_.push_back({&operation, std::move(owner)});
  if (parts_.timeline) {
    operation.call_.row = TraceRow(parts_.timeline.get(), lane_of(operation));
    operation.call_.row.begin(activity_name(name_of(operation.envelope().kind)));
  }
  if (parts_.recorder) {
    operation.call_.ticket =
        parts_.recorder->begin(parts_.recorded_context, operation.call_.index,
                               operation.partner(), operation.envelope());
  }
}

std::uint64_t Engine::take_index(int partner) {
  return partner < 0 ? next_call_++
                     : kFirstPairCall + ++pair_calls_[static_cast<std::size_t>(partner)];
}

std::uint64_t Engine::first_under_way() const noexcept {
  for (const Active& active : active_) {
    if (active.operation->partner() < 0 && !is_done(*active.operation)) {
      return active.operation->call_.index;
    }
  }
  return next_call_;
}

// Messages of a lane are taken in their order: a resting call would hold up those after it.
bool Engine::is_waited_for(const Active& active) const {
  if (active.operation->call_.waiters > 0) [[likely]] {
    return true;
  }
  const auto has_waiter = [](const Active& call) {
    return call.operation->call_.waiters > 0 || call.is_dropped();
  };
  const auto holds_messages = [](const Active& call) {
    return call.operation->call_.consumption == Consumption::OnWait &&
           call.operation->call_.exchange.expects_messages();
  };
  if (has_waiter(active) || !holds_messages(active)) {
    return has_waiter(active);
  }
  const auto own = std::ranges::find(active_, active.operation, &Active::operation);
  return std::any_of(own, active_.end(), [&](const Active& later) {
    return holds_messages(later) && has_waiter(later) && !is_done(*later.operation);
  });
}

bool Engine::may_publish_to_partner(const Operation& operation) const {
  bool may_publish = retractions_.empty();
  for (const auto& [earlier, owner] : active_) {
    if (earlier->partner() != operation.partner() || is_done(*earlier)) {
      continue;
    }
    if (earlier == &operation) {
      break;
    }
    may_publish &= earlier->call_.last && earlier->call_.exchange.published();
  }
  return may_publish;
}

bool Engine::step_all() {
  bool moved = false;
  for (const auto& transport : parts_.transports) {
    moved |= transport->progress();
  }
  if (attendant_) {
    moved |= attendant_->attend();
    for (const auto& [call, reason] : attendant_->take_ended_calls()) {
      tell_peers({.call = call}, reason, ControlMessage::Kind::Refusal);
    }
  }
  moved |= hear_control();  // before the messages that came with the words are looked at
  StepRights rights;
  rights.first_under_way = first_under_way();
  if (!retractions_.empty()) {
    moved |= retractions_.send();
    rights.may_publish = retractions_.empty();
  }
  bool some_finished = false;
  bool earlier_have_published = rights.may_publish;  // calls of all ranks, and end marks
  for (const Active& active : active_) {
    Operation& operation = *active.operation;
    CallState& call = operation.call_;
    const bool is_of_pair = operation.partner() >= 0;
    rights.may_publish = is_of_pair ? may_publish_to_partner(operation) : earlier_have_published;
    rights.waited_for = is_waited_for(active);
    if (step(operation, rights)) {
      ++call.moves;
      moved = true;
    }
    if (!retractions_.empty()) {
      earlier_have_published = false;  // an end mark has to come before the next message
    }
    if (is_done(operation)) {
      some_finished = true;
    } else if (!is_of_pair && (!call.last || !call.exchange.published())) {
      earlier_have_published = false;
    }
  }
  if (some_finished) {
    remove_finished();
  }
  return moved;
}

bool Engine::step(Operation& operation, const StepRights& rights) {
  CallState& call = operation.call_;
  if (is_done(operation)) {
    return false;
  }
  try {
    bool moved = false;
    if (call.phase.load(std::memory_order_relaxed) == CallState::Phase::Queued) {
      if (call.is_staged && !operation.may_begin()) {
        return false;
      }
      call.phase.store(CallState::Phase::Running, std::memory_order_relaxed);
      if (!start_next(operation)) {
        complete(operation);
        return true;
      }
    }
    while (true) {
      moved |= call.exchange.step(rights, *this);
      if (!call.exchange.finished()) {
        return moved;
      }
      if (call.last || !start_next(operation)) {
        complete(operation);
        return true;
      }
      moved = true;
    }
  } catch (...) {
    fail(operation, std::current_exception());
    return true;
  }
}

void Engine::end_span(Operation& operation, FlightRecorder::State state) {
  operation.call_.row.close();
  if (parts_.recorder) {
    parts_.recorder->set_state(operation.call_.ticket, state);
  }
}

bool Engine::start_next(Operation& operation) {
  CallState& call = operation.call_;
  ExchangeSpec& spec = call.exchange.new_spec();
  call.last = false;
  try {
    if (!operation.next(spec)) {
      return false;
    }
  } catch (const MismatchError&) {
    call.peers_know = true;
    throw;
  }
  call.step = std::max(call.step, spec.least_step);
  call.exchange.start(parts_.rank, CallId::make(call.index, call.step), parts_.routes, operation,
                      call.row.is_open() ? &call.row : nullptr);
  ++call.step;
  call.last = spec.last;
  call.consumption = spec.consumption;
  return true;
}

void Engine::complete(Operation& operation) {
  CallState& call = operation.call_;
  if (call.is_staged) {
    operation.finish();
  }
  if (attendant_) {
    tell_attendant_of(operation);
  }
  const bool throws = !pending_rejection_.empty() && larger_calls_ == 0;
  end_span(operation, throws ? FlightRecorder::State::Failed : FlightRecorder::State::Complete);
  if (throws) {
    call.error = std::make_exception_ptr(LateMismatchError(
        fmt::format("rank {}, {}, {}: heard of an earlier call only now: {}", parts_.rank,
                    call_text(call.index), operation.envelope().describe(),
                    std::exchange(pending_rejection_, {}))));
    call.phase.store(CallState::Phase::Failed, std::memory_order_release);
  } else {
    call.phase.store(CallState::Phase::Complete, std::memory_order_release);
  }
  if (sleepers_ > 0) {
    doorbell_->ring();
  }
}

void Engine::fail(Operation& operation, std::exception_ptr error, ControlMessage::Kind word) {
  CallState& call = operation.call_;
  note_failed(key_of(operation));
  if (last_late_call_ == key_of(operation)) {
    pending_rejection_.clear();  // its own error says it
  }
  const std::string reason = message_of(error);
  write_flight_record(reason);
  end_span(operation, FlightRecorder::State::Failed);
  retractions_.add(call.exchange.retract(), reason);
  if (!call.peers_know) {
    tell_peers(key_of(operation), reason, word);
  }
  operation.give_up();
  call.error = std::move(error);
  call.phase.store(CallState::Phase::Failed, std::memory_order_release);
  doorbell_->ring();
}

void Engine::remove_finished() {
  std::erase_if(active_, [](const Active& active) { return is_done(*active.operation); });
}

void Engine::attach(std::shared_ptr<Attendant> attendant) {
  const Lock lock(mutex_);
  attendant_ = std::move(attendant);
}

void Engine::set_interrupt_check(std::function<void()> check) {
  const Lock lock(mutex_);
  interrupt_check_ = std::move(check);
}

void Engine::check_interrupt() {
  Lock lock(mutex_);
  const auto check = interrupt_check_;
  lock.unlock();
  if (check) {
    check();
  }
}

bool Engine::has_given_up() {
  const Lock lock(mutex_);
  return given_up_;
}

bool Engine::is_closed() {
  if (is_forked()) {
    return true;
  }
  const Lock lock(mutex_);
  return closed_;
}

void Engine::close() noexcept {
  Lock lock(mutex_);
  if (!std::exchange(closed_, true)) {
    for (const auto& [operation, owner] : active_) {
      if (!is_done(*operation)) {
        fail(*operation, std::make_exception_ptr(StateError(
                             fmt::format("rank {}, {}: the context was closed before it completed",
                                         parts_.rank, operation->envelope().describe()))));
      }
    }
    step_all();  // one try to tell the peers
    active_.clear();
    if (!pending_rejection_.empty()) {
      parts_.log.error(pending_rejection_);  // no further call comes to throw it
    }
  }
  work_to_drive_.notify_all();
  doorbell_->ring();
  const int own_drivers = in_interrupt_check_ == this ? 1 : 0;
  while (drivers_ > own_drivers) {  // they see that their calls have failed
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  lock.unlock();
  if (progress_thread_.joinable() && progress_thread_.get_id() != std::this_thread::get_id()) {
    progress_thread_.join();
  }
  lock.lock();
  doorbell_ = &own_doorbell_;
  attendant_.reset();
  retractions_.clear();
  std::ranges::fill(parts_.routes, nullptr);
  parts_.transports.clear();  // peers that wait for this rank are told
}

const Transport& Engine::transport_to(int peer) {
  if (is_forked()) {
    throw_forked("transport_to");
  }
  const Lock lock(mutex_);
  if (closed_) {
    throw StateError(fmt::format("rank {}: the context is closed", parts_.rank));
  }
  return *parts_.routes[static_cast<std::size_t>(peer)];
}

}  // namespace bluefog
