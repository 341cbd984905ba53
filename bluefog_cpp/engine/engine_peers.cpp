// What the engine hears of other ranks, and says when they do not come.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

void Engine::refuse(std::string_view reason, int partner) {
  if (is_forked()) {
    return;
  }
  const Lock lock(mutex_);
  if (closed_) {
    return;
  }
  const CallKey call{.call = take_index(partner), .partner = partner};
  note_failed(call);
  tell_peers(call, reason, ControlMessage::Kind::Refusal);
}

void Engine::tell_peers(CallKey call, std::string_view reason, ControlMessage::Kind word) {
  const ControlMessage message{.kind = word, .call = call.call, .text = std::string(reason)};
  for (int peer = 0; peer < parts_.size; ++peer) {
    if (peer != parts_.rank && (call.partner < 0 || call.partner == peer)) {
      parts_.routes[static_cast<std::size_t>(peer)]->send_control(peer, message);
    }
  }
}

const Engine::Refusal* Engine::find_refusal(int rank, std::uint64_t call) const {
  const auto& refusals = refusals_[static_cast<std::size_t>(rank)];
  const auto it = std::ranges::find(refusals, call, &Refusal::call);
  return it == refusals.end() ? nullptr : &*it;
}

const std::string* Engine::refusal(int rank, std::uint64_t call) const {
  const Refusal* const found = find_refusal(rank, call);
  return found == nullptr ? nullptr : &found->reason;
}

const std::string* Engine::giving_up(int rank, std::uint64_t call) const {
  const Refusal* const found = find_refusal(rank, call);
  return found == nullptr || found->kind != ControlMessage::Kind::GivenUp ? nullptr : &found->reason;
}

bool Engine::is_under_way(int rank, std::uint64_t call) const {
  return find_active(key_of(rank, call)) != nullptr;
}

void Engine::report_unexpected(int rank, std::uint64_t call, const std::string& text) {
  if (has_failed(key_of(rank, call))) {
    return;  // its sender was told then
  }
  const std::string both = fmt::format(
      "rank {} sent a message in {}, {}, that rank {} did not expect: senders and receivers "
      "of that call do not match",
      rank, call_text(call), text, parts_.rank);
  parts_.routes[static_cast<std::size_t>(rank)]->send_control(
      rank, {.kind = ControlMessage::Kind::Rejection, .call = call, .text = both});
  report_late(key_of(rank, call), both);
}

void Engine::report_late(CallKey call, std::string text) {
  if (call != last_late_call_) {  // both sides notice, and both are told by the other
    last_late_call_ = call;
    pending_rejection_ = std::move(text);
  }
}

void Engine::count_larger_calls(int change) {
  const Lock lock(mutex_);
  larger_calls_ += change;
}

bool Engine::hear_control() {
  bool moved = false;
  for (const auto& transport : parts_.transports) {
    while (auto word = transport->poll_control()) {
      hear(word->first, std::move(word->second));
      moved = true;
    }
  }
  return moved;
}

void Engine::hear(int source, ControlMessage message) {
  given_up_ = given_up_ || message.kind == ControlMessage::Kind::GivenUp;
  if (message.kind != ControlMessage::Kind::Rejection) {
    if (attendant_) {
      attendant_->hear_failure(source, message.call, message.text,
                               is_over(key_of(source, message.call)));
    }
    auto& refusals = refusals_[static_cast<std::size_t>(source)];
    std::erase_if(refusals, [this, source](const Refusal& refusal) {
      return is_over(key_of(source, refusal.call));
    });
    if (!is_over(key_of(source, message.call))) {
      refusals.push_back({message.call, message.kind, std::move(message.text)});
    }
    knows_of_giving_up_ = std::ranges::any_of(refusals_, [](const auto& of_peer) {
      return std::ranges::find(of_peer, ControlMessage::Kind::GivenUp, &Refusal::kind) !=
             of_peer.end();
    });
    return;
  }
  const CallKey key = key_of(source, message.call);
  if (has_failed(key)) {
    return;  // both sides saw it
  }
  std::string text = fmt::format("rank {}, {}: rank {} did not accept this rank's message: {}",
                                 parts_.rank, call_text(message.call), source, message.text);
  if (Operation* const operation = find_active(key)) {
    fail(*operation, std::make_exception_ptr(MismatchError(text)));
  } else {
    report_late(key, std::move(text));
  }
}

Operation* Engine::find_active(CallKey call) const noexcept {
  const auto it = std::ranges::find_if(active_, [call](const Active& active) {
    return key_of(*active.operation) == call && !is_done(*active.operation);
  });
  return it == active_.end() ? nullptr : it->operation;
}

bool Engine::has_failed(CallKey call) const noexcept {
  return std::ranges::find(failed_calls_, call) != failed_calls_.end();
}

void Engine::note_failed(CallKey call) {
  if (failed_calls_.size() < Transport::kMostWaitingWords) {
    failed_calls_.push_back(call);
  } else {
    failed_calls_[failed_count_++ % failed_calls_.size()] = call;
  }
  // Its messages may come while this rank makes no call here.
  start_progress_thread();
  work_to_drive_.notify_one();
}

bool Engine::drop_messages_of_failed_calls() {
  if (failed_calls_.empty()) {
    return false;
  }
  bool dropped = false;
  for (int peer = 0; peer < parts_.size; ++peer) {
    Transport* const transport = parts_.routes[static_cast<std::size_t>(peer)];
    for (const Lane lane : {Lane::Ordinary, Lane::Deep}) {
      const auto is_of_failed_call = [&] {
        const auto* const header = transport->arrived(peer, lane);
        return header != nullptr && has_failed(key_of(peer, header->id.call()));
      };
      while (transport != nullptr && is_of_failed_call() &&
             drop_message(*transport, peer, lane, *this)) {
        dropped = true;
      }
    }
  }
  return dropped;
}

bool Engine::is_over(CallKey call) const noexcept {
  const bool is_made =
      call.call < (call.partner < 0 ? next_call_
                                    : kFirstPairCall + 1 +
                                          pair_calls_[static_cast<std::size_t>(call.partner)]);
  return is_made && find_active(call) == nullptr;
}

void Engine::tell_attendant_of(const Operation& operation) {
  for (int rank = 0; rank < parts_.size; ++rank) {
    if (const Refusal* const word = find_refusal(rank, operation.call_.index)) {
      attendant_->hear_failure(rank, word->call, word->reason, /*is_over=*/true);
    }
  }
}

void Engine::tell_attendant_of_dead_peers() {
  for (const int rank : attendant_->awaited_ranks()) {
    if (const auto obituary = parts_.routes[static_cast<std::size_t>(rank)]->obituary(rank)) {
      attendant_->hear_death(rank, *obituary);
    }
  }
}

void Engine::fail_calls_on_dead_peers() {
  if (attendant_) {
    tell_attendant_of_dead_peers();
  }
  const auto find_dead = [this](const Operation& operation) -> std::pair<int, std::string> {
    for (auto ranks :
         {operation.call_.exchange.awaited_sources(), operation.call_.exchange.awaited_readers()}) {
      for (const int rank : ranks) {
        if (auto obituary = parts_.routes[static_cast<std::size_t>(rank)]->obituary(rank)) {
          return {rank, std::move(*obituary)};
        }
      }
    }
    return {-1, {}};
  };
  const auto is_running = [](const Active& active) {
    return active.operation->call_.phase.load(std::memory_order_relaxed) ==
           CallState::Phase::Running;
  };
  const auto some_dead = std::ranges::any_of(active_, [&](const Active& active) {
    return is_running(active) && find_dead(*active.operation).first >= 0;
  });
  if (!some_dead) {
    return;
  }
  // A peer may have sent its last message just before it went.
  while (step_all()) {
  }
  for (const Active& active : active_) {
    if (!is_running(active)) {
      continue;
    }
    Operation* const operation = active.operation;
    if (const auto [rank, obituary] = find_dead(*operation); rank >= 0) {
      fail(*operation, std::make_exception_ptr(PeerFailure(
                           rank, fmt::format("rank {}, {}, {}: waited for rank {}, but {}{}",
                                             parts_.rank, call_text(operation->call_.index),
                                             operation->envelope().describe(), rank, obituary,
                                             ahead_elsewhere(rank)))));
    }
  }
}

std::optional<std::string> Engine::obituary(int peer) {
  if (is_forked()) {
    return std::nullopt;
  }
  const Lock lock(mutex_);
  Transport* const transport = parts_.routes[static_cast<std::size_t>(peer)];
  return transport == nullptr ? std::nullopt : transport->obituary(peer);
}

bool Engine::has_dead_peer() {
  const Lock lock(mutex_);
  for (std::size_t peer = 0; peer < parts_.routes.size(); ++peer) {
    Transport* const transport = parts_.routes[peer];
    if (transport != nullptr && transport->has_died(static_cast<int>(peer))) {
      return true;
    }
  }
  return false;
}

std::string Engine::call_ahead(int peer) {
  const Lock lock(mutex_, std::try_to_lock);  // two engines may ask each other
  Transport* const route = lock ? parts_.routes[static_cast<std::size_t>(peer)] : nullptr;
  if (route == nullptr) {
    return {};
  }
  try {  // nobody may have looked, in a context that makes no call now
    constexpr int kLooks = 3;  // the first one may only post a receive
    for (int look = 0; look < kLooks; ++look) {
      for (const Lane lane : {Lane::Ordinary, Lane::Deep}) {
        (void)route->arrived(peer, lane);
      }
      (void)route->progress();
    }
  } catch (const Error&) {
    return {};  // calls of that context will say it
  }
  const auto [call, kind] = route->last_call(peer);
  if (call < next_call_ || is_pair_call(call)) {
    return {};
  }
  return fmt::format("{}, {}", call_text(call), name_of(kind));
}

std::string Engine::ahead_elsewhere(int rank) const {
  return parts_.relatives ? parts_.relatives->ahead_elsewhere(rank, *this) : std::string();
}

std::string Engine::awaited_text(const Operation& operation) const {
  // A call may stand behind earlier ones: what they wait for is what counts.
  const Operation* blocked = &operation;
  for (const auto& [earlier, owner] : active_) {
    if (earlier->partner() == operation.partner() &&
        earlier->call_.phase.load(std::memory_order_relaxed) == CallState::Phase::Running) {
      blocked = earlier;
      break;
    }
  }
  std::string text;
  if (blocked != &operation) {
    text =
        fmt::format("behind {}, {}, ", call_text(blocked->call_.index), blocked->envelope().describe());
  }
  if (blocked->call_.is_staged &&
      blocked->call_.phase.load(std::memory_order_relaxed) == CallState::Phase::Queued) {
    text += "the device has not given its values";
  }
  const auto add = [&](std::string_view role, const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      text += fmt::format(
          "{}{} rank {} ({}{})", text.empty() || text.ends_with(", ") ? "" : "; ", role, rank,
          parts_.routes[static_cast<std::size_t>(rank)]->last_seen(rank),
          ahead_elsewhere(rank));
    }
  };
  add("no message from", blocked->call_.exchange.awaited_sources());
  add("not taken by", blocked->call_.exchange.awaited_readers());
  return text;
}

void Engine::write_flight_record(std::string_view reason) const {
  if (!parts_.recorder) {
    return;
  }
  for (const auto& [operation, owner] : active_) {
    const CallState& call = operation->call_;
    if (call.phase.load(std::memory_order_relaxed) == CallState::Phase::Running) {
      parts_.recorder->note_wait(call.ticket, call.exchange.awaited_sources(),
                                 call.exchange.awaited_readers());
    }
  }
  parts_.recorder->write(reason);
}

void Engine::record_stall(std::string_view reason) {
  const Lock lock(mutex_);
  write_flight_record(reason);
}

void Engine::warn_of_stall(const Operation& operation, std::chrono::milliseconds waited) const {
  write_flight_record("a call has stalled");
  parts_.log.warning(fmt::format("{}, {}, has been waiting for {:.1f} s: {}",
                                 call_text(operation.call_.index), operation.envelope().describe(),
                                 static_cast<double>(waited.count()) / 1000.0,
                                 awaited_text(operation)));
}

std::exception_ptr Engine::timeout_error(const Operation& operation) const {
  return std::make_exception_ptr(TimeoutError(fmt::format(
      "rank {}, {}, {}: nothing moved for {:.1f} s (BLUEFOG_TIMEOUT): {}", parts_.rank,
      call_text(operation.call_.index), operation.envelope().describe(),
      static_cast<double>(parts_.policy.timeout.count()) / 1000.0, awaited_text(operation))));
}

}  // namespace bluefog
