#include "bluefog_cpp/engine/records/hopeless_calls.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {
namespace {

/// "rank 0, call 5, barrier".
std::string place_of(int rank, const Operation& operation) {
  return fmt::format("rank {}, {}, {}", rank, call_text(CallState::of(operation).index),
                     operation.envelope().describe());
}

/// As `text_of`, and tells `theirs` from `own` where they differ in their place alone.
std::string text_beside(OpKind theirs, OpKind own) {
  const bool differ_in_place =
      theirs != own && name_of(theirs) == name_of(own) && !is_on_device(theirs);
  return text_of(theirs) + (differ_in_place ? " on the CPU" : "");
}

constexpr std::string_view kRule = "all ranks must make the same calls in the same order";

}  // namespace

HopelessCalls::HopelessCalls(const Peers& peers, const CallQueue& queue, const Engine& engine,
                             std::shared_ptr<ContextFamily> family)
    : peers_(peers), queue_(queue), engine_(engine), family_(std::move(family)) {}

bool HopelessCalls::has_one_caller() const { return family_ && family_->has_one_caller(); }

std::string HopelessCalls::why_unmatched(const Operation& operation) const {
  const CallState& call = CallState::of(operation);
  if (operation.partner() >= 0 || !call.is_running()) {
    return {};
  }
  for (const int rank : call.exchange.awaited_sources()) {
    const auto standing = peers_.standing_of(rank);
    if (!standing || !call.exchange.lacks_message_of(rank)) {
      continue;
    }
    const OpKind own = operation.envelope().kind;
    if (standing->begun.call == call.index && standing->begun.kind != own) {
      return fmt::format(
          "{}: expected a message from rank {}, but that rank makes this call as {}; {}",
          place_of(peers_.rank(), operation), rank, text_beside(standing->begun.kind, own), kRule);
    }
    if (standing->first_under_way > call.index) {
      return fmt::format(
          "{}: expected a message from rank {}, but that rank has ended this call without one for "
          "this rank; senders and receivers of that call do not match",
          place_of(peers_.rank(), operation), rank);
    }
  }
  return {};
}

std::optional<std::string> HopelessCalls::why_lost(int rank, const CallState& call,
                                                   const PeerReports& reports) const {
  auto cause = peers_.cause_of_death(rank);
  if (cause && call.exchange.is_behind_another(rank, reports)) {
    const auto standing = peers_.standing_of(rank);
    if (!standing || standing->begun.call >= call.index) {
      return std::nullopt;
    }
  }
  return cause;
}

std::optional<HopelessCalls::Deadlock> HopelessCalls::find_deadlock(
    const Operation& operation) const {
  const Operation& blocking = queue_.blocking(operation);
  const CallState& call = CallState::of(blocking);
  if (blocking.partner() >= 0 || !call.is_running() || !has_one_caller()) {
    return std::nullopt;
  }
  for (const int rank : call.exchange.awaited_sources()) {
    const auto standing = peers_.standing_of(rank);
    // A rank that has begun this call may send without its thread.
    if (!standing || is_pair_call(standing->begun.call) || standing->begun.call >= call.index) {
      continue;
    }
    const auto [engine, there] = family_->find_wait_elsewhere(rank, engine_);
    if (engine != nullptr) {
      return Deadlock{
          .rank = rank,
          .engine = engine,
          .call = there.call,
          .text = fmt::format(
              "{}: waited for rank {}, but that rank waits for this one in another context, as "
              "each distributed optimizer has one: it has begun {}, {}, which this rank has not; {}",
              place_of(peers_.rank(), operation), rank, call_text(there.call), text_of(there.kind),
              kRule)};
    }
  }
  return std::nullopt;
}

std::optional<Transport::SeenCall> HopelessCalls::wait_for_this(int peer,
                                                                std::uint64_t next_call) const {
  const auto standing = peers_.standing_of(peer);
  if (!standing || standing->wait.rank != peers_.rank() || standing->wait.call < next_call ||
      standing->begun.call != standing->wait.call) {
    return std::nullopt;
  }
  return standing->begun;
}

bool HopelessCalls::show_wait(const Operation& operation) {
  const Operation& blocking = queue_.blocking(operation);
  const CallState& call = CallState::of(blocking);
  if (blocking.partner() >= 0 || !call.is_running() || !has_one_caller()) {
    return false;
  }
  const AwaitedRanks sources = call.exchange.awaited_sources();
  if (sources.empty()) {
    return false;
  }
  peers_.note_wait({.call = call.index, .rank = sources.front()});
  return true;
}

}  // namespace bluefog
