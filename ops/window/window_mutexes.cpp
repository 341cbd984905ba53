#include "ops/window/window_mutexes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bluefog_cpp/error.hpp"
#include "ops/window/lock_site.hpp"

namespace bluefog::ops {

void WindowMutexes::check_not_held(int rank, std::string_view call) const {
  const std::scoped_lock lock(mutex_);
  const auto is_it = [rank, thread = std::this_thread::get_id()](const Held& held) {
    return held.rank == rank && held.thread == thread;
  };
  if (std::ranges::any_of(held_, is_it)) {
    throw StateError(fmt::format(
        "{}: expected a thread that does not hold the mutex of rank {}, found one that does: it "
        "would wait for itself",
        window_.where(call), rank));
  }
}

void WindowMutexes::check_not_held(std::span<const WeightedRank> ranks,
                                   std::string_view call) const {
  for (const WeightedRank& item : ranks) {
    check_not_held(item.rank, call);
  }
}

std::uint64_t WindowMutexes::take(int rank, WindowCall& call) {
  check_not_held(rank, call.name());
  std::uint64_t ticket = 0;
  if (const WindowMemory* const memory = parts_.reachable(rank, call.name())) {
    const LockSite site{
        .window = window_, .call = &call, .what = WindowWait::For::Mutex, .rank = rank};
    site.take(memory->mutex());
  } else {
    ticket =
        parts_.ask(call, WindowWait::For::Mutex, rank, {.kind = WindowMessage::Kind::Lock}).ticket;
  }
  const std::scoped_lock lock(mutex_);
  // One holder at a time: another entry is from a thread that has ended and did not release.
  std::erase_if(held_, [rank](const Held& held) { return held.rank == rank; });
  held_.push_back({.rank = rank, .ticket = ticket, .thread = std::this_thread::get_id()});
  return ticket;
}

void WindowMutexes::release(int rank, std::uint64_t ticket) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto held = std::ranges::find_if(
      held_, [&](const Held& one) { return one.rank == rank && one.ticket == ticket; });
  if (held == held_.end()) {
    return;  // `close` has released it
  }
  const auto& memory = parts_.of(rank).memory;
  if (!memory) {
    parts_.notify(rank, {.kind = WindowMessage::Kind::Unlock, .ticket = ticket});
  } else if (!memory->mutex().release()) {
    window_.context().log().error(fmt::format(
        "{}: the mutex of rank {} has to be released by the thread that took it; it stays taken "
        "until that thread ends",
        window_.where("mutex"), rank));
    return;
  }
  held_.erase(held);
}

void WindowMutexes::release_own() {
  std::unique_lock lock(mutex_);
  const auto held = held_;
  lock.unlock();
  for (const Held& one : held) {
    if (one.thread == std::this_thread::get_id()) {
      release(one.rank, one.ticket);
    }
  }
}

std::optional<int> WindowMutexes::held_elsewhere() const {
  const std::scoped_lock lock(mutex_);
  const auto other = std::ranges::find_if(
      held_, [](const Held& held) { return held.thread != std::this_thread::get_id(); });
  return other == held_.end() ? std::nullopt : std::optional(other->rank);
}

}  // namespace bluefog::ops
