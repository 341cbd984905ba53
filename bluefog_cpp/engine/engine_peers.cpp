// The engine's answers about other ranks, and its part in agreeing with them on the next call.
#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

std::optional<std::string> Engine::cause_of_death(int peer) {
  if (is_forked()) {
    return std::nullopt;
  }
  const Lock lock(mutex_);
  return step_news_.given_up.cause(peer, peers_.cause_of_death(peer));
}

bool Engine::has_dead_peer() {
  const Lock lock(mutex_);
  return peers_.has_dead_peer();
}

bool Engine::is_revoked() {
  const Lock lock(mutex_);
  while (!closed_ && driver_.step_all()) {
  }
  return !closed_ && driver_.look_for_losses();
}

void Engine::check_revoked(std::string_view where) {
  if (is_revoked()) {
    const Lock lock(mutex_);
    std::rethrow_exception(revocation_.error(where));
  }
}

void Engine::revoke(std::string_view why) {
  if (is_forked()) {
    throw_forked("shrink");
  }
  const Lock lock(mutex_);
  if (!closed_) {
    driver_.revoke(revocation_.by_this_rank(why));
    while (driver_.step_all()) {
    }
  }
}

std::string Engine::call_ahead(int peer) {
  const Lock lock(mutex_, std::try_to_lock);  // two engines may ask each other
  if (!lock) {
    return {};
  }
  const auto [call, kind] = peers_.latest_call(peer);
  if (call < ledger_.next_call() || is_pair_call(call)) {
    return {};
  }
  return fmt::format("{}, {}", call_text(call), text_of(kind));
}

std::optional<Transport::SeenCall> Engine::wait_for_this(int peer) {
  const Lock lock(mutex_, std::try_to_lock);  // two engines may ask each other
  return lock ? hopeless_.wait_for_this(peer, ledger_.next_call()) : std::nullopt;
}

void Engine::report_deadlock(int peer, std::uint64_t call, std::string_view why) {
  const Lock lock(mutex_);
  if (!closed_) {
    peers_.route_to(peer)->send_control(
        peer, {.kind = ControlMessage::Kind::Deadlock, .call = call, .text = std::string(why)});
    // The call ends there, whether this rank comes to it first or not.
    ledger_.note_refusal(
        peer, {.kind = ControlMessage::Kind::Abandoned, .call = call, .text = std::string(why)});
  }
}

bool Engine::has_abandoned() {
  const Lock lock(mutex_);
  return ledger_.has_abandoned();
}

void Engine::note_abandonment() {
  const Lock lock(mutex_);
  ledger_.note_abandonment();
}

Engine::CallCounts Engine::begin_resync() {
  if (is_forked()) {
    throw_forked("resync");
  }
  const Lock lock(mutex_);
  if (closed_) {
    throw StateError(fmt::format("rank {}, resync: the context is closed", peers_.rank()));
  }
  if (revocation_.is_known()) {
    std::rethrow_exception(revocation_.error("resync"));
  }
  driver_.fail_all([this](const Operation& operation) {
    return std::make_exception_ptr(StateError(
        fmt::format("rank {}, {}, {}: ended by a resync before it completed", peers_.rank(),
                    call_text(CallState::of(operation).index), operation.envelope().describe())));
  });
  // Ranks that wait for this one, in a call that it has not made, need not wait any longer.
  peers_.report({.call = ledger_.next_call()},
                fmt::format("rank {} has called resync(), as all ranks have to", peers_.rank()),
                ControlMessage::Kind::Abandoned);
  driver_.step_all();
  return {.next_call = ledger_.next_call(),
          .changes = ledger_.changes(),
          .failed_without_change = ledger_.failed_without_change(),
          .pair_calls = ledger_.pair_calls()};
}

void Engine::end_resync(std::uint64_t next_call, std::vector<std::uint64_t> pair_calls) {
  const Lock lock(mutex_);
  ledger_.go_on_from(next_call, std::move(pair_calls));
  driver_.show_ends();
  while (driver_.step_all() || driver_.drop_messages_of_failed_calls()) {
  }
}

}  // namespace bluefog
