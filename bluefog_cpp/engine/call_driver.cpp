#include "bluefog_cpp/engine/call_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/engine/exchange/source.hpp"

namespace bluefog {
void CallDriver::enqueue(Operation& operation, std::shared_ptr<Operation> owner) {
  CallState& call = CallState::of(operation);
  const int partner = operation.partner();
  Letter* const letter = partner < 0 ? nullptr : operation.letter();
  try {
    if (retractions_.has_torn_streams()) [[unlikely]] {
      throw StateError(fmt::format(
          "rank {}, {}: the system had no memory left to end the messages of an earlier call",
          parts_.peers.rank(), operation.envelope().describe()));
    }
    parts_.queue.reserve_one();
  } catch (const std::exception& error) {
    if (letter == nullptr) {
      refuse(error.what(), partner);  // the others make this call, and count it
    }
    throw;
  }
  call.index = letter == nullptr ? parts_.ledger.take_number(partner)
                                 : parts_.ledger.take_number(partner, *letter);
  parts_.peers.note_call(CallId::make(call.index, 0), operation.envelope().kind);
  parts_.queue.add(operation, std::move(owner));
  where_memory_allows([&] {  // the queue has the operation, which may be on the caller's stack
    parts_.records.begin(operation);
    if (inquiries_.has_kept() && partner < 0) [[unlikely]] {
      fail_contradicted(inquiries_.hear_kept(call.index));
    }
  });
}

void CallDriver::refuse(std::string_view reason, int partner) noexcept {
  const CallKey key{.call = parts_.ledger.take_number(partner), .partner = partner};
  note_failed(key);
  where_memory_allows([&] { parts_.peers.report(key, reason, ControlMessage::Kind::Refusal); });
  show_ends();
}

bool CallDriver::step_all() {
  bool moved = parts_.peers.progress();
  if (progress_hook_) {
    moved |= attend();
  }
  moved |= receive_reports();  // before the messages that came with them are looked at
  StepRights rights;
  rights.first_under_way = parts_.queue.first_under_way(parts_.ledger.next_call());
  if (!retractions_.empty()) {
    moved |= retractions_.send();
    rights.may_publish = retractions_.empty();
  }
  bool some_finished = false;
  bool earlier_have_published = rights.may_publish;  // calls of all ranks, and end marks
  for (const QueuedCall& queued : parts_.queue) {
    Operation& operation = *queued.operation;
    CallState& call = queued.state();
    const bool is_of_pair = operation.partner() >= 0;
    rights.may_publish =
        is_of_pair ? retractions_.empty() && parts_.queue.earlier_have_published(operation)
                   : earlier_have_published;
    rights.waited_for = parts_.queue.is_waited_for(queued);
    if (step(operation, rights)) {
      ++call.moves;
      moved = true;
    }
    // An end mark has to come before the next message.
    earlier_have_published = earlier_have_published && retractions_.empty();
    if (call.is_done()) {
      some_finished = true;
    } else if (!is_of_pair && (!call.last || !call.exchange.published())) {
      earlier_have_published = false;
    }
  }
  if (some_finished) {
    parts_.queue.remove_finished();
  }
  return moved;
}

bool CallDriver::attend() {
  const bool moved = progress_hook_->attend();
  for (const auto& [call, reason] : progress_hook_->take_ended_calls()) {
    parts_.peers.report({.call = call}, reason, ControlMessage::Kind::Refusal);
  }
  return moved;
}

bool CallDriver::step(Operation& operation, const StepRights& rights) {
  CallState& call = CallState::of(operation);
  if (call.is_done()) {
    return false;
  }
  try {
    bool moved = false;
    if (call.is_queued()) {
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
      moved |= call.exchange.step(rights, parts_.ledger);
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

bool CallDriver::start_next(Operation& operation) {
  CallState& call = CallState::of(operation);
  ExchangeSpec& spec = call.exchange.new_spec();
  call.last = false;
  try {
    if (!operation.next(spec)) {
      return false;
    }
  } catch (const MismatchError&) {
    call.peers_know = true;
    throw;
  } catch (...) {
    call.has_changed |= call.step > 0;
    throw;
  }
  call.has_changed |= call.changes_now || spec.follows_change;
  call.changes_now = !spec.keeps_buffers;
  call.step = std::max(call.step, spec.least_step);
  call.exchange.start(parts_.peers.rank(), CallId::make(call.index, call.step),
                      parts_.peers.routes(), operation, call.row.is_open() ? &call.row : nullptr);
  ++call.step;
  call.last = spec.last;
  call.consumption = spec.consumption;
  return true;
}

void CallDriver::complete(Operation& operation) {
  CallState& call = CallState::of(operation);
  if (call.is_staged) {
    operation.finish();
  }
  if (progress_hook_) {
    report_to_hook(operation);
  }
  call.owners.clear();
  if (operation.partner() < 0) {
    inquiries_.note_complete(operation);
    if (call.is_in_place) {
      parts_.ledger.note_change(call.index, operation.envelope());
    }
  }
  const bool throws = parts_.ledger.has_late_mismatch();
  parts_.records.end(operation,
                     throws ? FlightRecorder::State::Failed : FlightRecorder::State::Complete);
  if (throws) [[unlikely]] {
    call.error = std::make_exception_ptr(LateMismatchError(
        fmt::format("rank {}, {}, {}: heard of an earlier call only now: {}", parts_.peers.rank(),
                    call_text(call.index), operation.envelope().describe(),
                    parts_.ledger.take_late_mismatch())));
    call.phase.store(CallState::Phase::Failed, std::memory_order_release);
  } else {
    call.phase.store(CallState::Phase::Complete, std::memory_order_release);
  }
  show_ends();
  parts_.sleepers.wake();
}

void CallDriver::fail(Operation& operation, std::exception_ptr error,
                      ControlMessage::Kind report) noexcept {
  where_memory_allows([&] { revoke(parts_.step_news.given_up.reason_of(error)); });
  if (CallState::of(operation).is_done()) {
    return;
  }
  CallState& call = CallState::of(operation);
  const CallKey key = CallQueue::key_of(operation);
  std::string reason;
  where_memory_allows([&] {
    reason = message_of(error);
    parts_.records.write_flight_record(parts_.queue, reason);  // readers are known until the end
  });
  retractions_.end(call.exchange, reason);
  if (const Letter* const letter = operation.letter()) {
    // Streams show messages that were begun, and gaps; no peer needs a report of a receipt's end.
    call.peers_know = true;
    if (letter->is_received) {
      where_memory_allows([&] { parts_.ledger.letters().give_up(key.partner, *letter); });
    }
  } else {
    note_failed(key);
  }
  parts_.ledger.forget_late_mismatch(key);
  where_memory_allows([&] { parts_.records.end(operation, FlightRecorder::State::Failed); });
  if (!call.peers_know) {
    where_memory_allows([&] { parts_.peers.report(key, reason, report); });
  }
  operation.give_up();
  const bool has_used = call.is_running() && call.exchange.has_used();
  const bool has_changed = call.has_changed || (has_used && call.changes_now);
  if (call.is_in_place && operation.partner() < 0 && has_changed) {
    parts_.ledger.note_change(call.index, operation.envelope());
  }
  call.owners.clear();
  call.error = std::move(error);
  call.phase.store(CallState::Phase::Failed, std::memory_order_release);
  show_ends();
  parts_.sleepers.wake_always();
}

void CallDriver::note_failed(CallKey key) noexcept {
  where_memory_allows([&] { parts_.ledger.note_failed(key); });
  parts_.background.wake();
}

bool CallDriver::drop_messages_of_failed_calls() {
  if (!parts_.ledger.has_failed_calls()) {
    return false;
  }
  bool dropped = false;
  for (int peer = 0; peer < parts_.peers.size(); ++peer) {
    Transport* const transport = parts_.peers.route_to(peer);
    for (const Lane lane : {Lane::Ordinary, Lane::Deep}) {
      const auto is_of_failed_call = [&] {
        const auto* const header = transport->arrived(peer, lane);
        return header != nullptr && parts_.ledger.has_failed(CallKey::of(peer, header->id.call()));
      };
      while (transport != nullptr && is_of_failed_call() &&
             drop_message(*transport, peer, lane, parts_.ledger)) {
        dropped = true;
      }
    }
  }
  return dropped;
}

void CallDriver::fail_calls_on_dead_peers() {
  if (progress_hook_) {
    report_dead_peers_to_hook();
  }
  if (!parts_.queue.empty() && look_for_losses()) {
    return;
  }
  struct Death {
    int rank = -1;
    std::string cause{};
  };
  const auto find_death = [this](const QueuedCall& queued) -> std::optional<Death> {
    const Exchange& exchange = queued.state().exchange;
    if (queued.state().is_running()) {
      // A call that rests leaves what has come where it is, for whoever waits for it.
      const bool rests =
          queued.state().consumption == Consumption::OnWait && !parts_.queue.is_waited_for(queued);
      for (const auto& ranks : {rests ? exchange.lacking_sources() : exchange.awaited_sources(),
                                exchange.awaited_readers()}) {
        for (const int rank : ranks) {
          if (auto cause = parts_.hopeless.why_lost(rank, queued.state(), parts_.ledger)) {
            return Death{rank, std::move(*cause)};
          }
        }
      }
    }
    return std::nullopt;
  };
  if (std::ranges::none_of(
          parts_.queue, [&](const QueuedCall& queued) { return find_death(queued).has_value(); })) {
    return;
  }
  // A peer may have sent its last message just before it went.
  while (step_all()) {
  }
  for (const QueuedCall& queued : parts_.queue) {
    if (const auto death = find_death(queued)) {
      if (revoke(parts_.revocation.by_the_gone(death->rank, death->cause))) {
        return;
      }
      Operation& operation = *queued.operation;
      fail(operation, parts_.stalls.death_error(operation, death->rank, death->cause));
    }
  }
}

void CallDriver::fail_unmatched_calls() {
  constexpr int kLooks = 15;  // a message, a report or the answer to an inquiry says more
  inquiries_.look();
  bool some_are_hopeless = false;
  for (const QueuedCall& queued : parts_.queue) {
    CallState& call = queued.state();
    const bool is_unmatched = !parts_.hopeless.why_unmatched(*queued.operation).empty();
    call.hopeless_looks = is_unmatched ? call.hopeless_looks + 1 : 0;
    some_are_hopeless |= call.hopeless_looks >= kLooks;
  }
  if (!some_are_hopeless) {
    return;
  }
  while (step_all()) {
  }
  for (const QueuedCall& queued : parts_.queue) {
    const std::string why = parts_.hopeless.why_unmatched(*queued.operation);
    if (!why.empty() && queued.state().hopeless_looks >= kLooks) {
      fail(*queued.operation, std::make_exception_ptr(MismatchError(why)));
    }
  }
}

void CallDriver::attach(std::shared_ptr<ProgressHook> progress_hook) {
  progress_hook_ = std::move(progress_hook);
}

void CallDriver::detach() noexcept {
  progress_hook_.reset();
  retractions_.clear();
}

void CallDriver::report_to_hook(const Operation& operation) {
  for (int rank = 0; rank < parts_.peers.size(); ++rank) {
    if (const auto* const refusal =
            parts_.ledger.find_refusal(rank, CallState::of(operation).index)) {
      progress_hook_->note_failure(rank, refusal->call, refusal->reason, /*is_over=*/true);
    }
  }
}

void CallDriver::report_dead_peers_to_hook() {
  for (const int rank : progress_hook_->awaited_ranks()) {
    if (const auto cause = parts_.peers.cause_of_death(rank)) {
      progress_hook_->note_death(rank, *cause);
    }
  }
}

bool CallDriver::has_work() const {
  return (progress_hook_ && progress_hook_->is_busy()) || parts_.peers.has_pending() ||
         !retractions_.empty() || parts_.queue.has_work();
}

bool CallDriver::needs_polling() const {
  return (progress_hook_ && progress_hook_->is_busy()) || parts_.peers.needs_polling() ||
         parts_.queue.has_staged();
}

}  // namespace bluefog
