// How a window's locks are taken and released.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/window/window_core.hpp"

namespace bluefog::ops {
namespace {

constexpr std::chrono::milliseconds kLockPeriod{50};
/// Where a lock is taken for a rank whose memory is not shared.
constexpr std::string_view kServed = "a call of a rank on another host";

}  // namespace

void WindowCore::take_in_time(shm::RobustLock& lock, const LockSite& site) {
  using Outcome = shm::RobustLock::Outcome;
  const std::string_view name = site.call != nullptr ? site.call->name() : kServed;
  Outcome outcome = lock.try_take(context_->rank());
  if (outcome == Outcome::Busy) {
    const Deadline deadline = hub_->deadline();
    std::optional<WindowWait> wait;
    if (site.call != nullptr) {
      wait.emplace(*site.call, site.what, site.rank);
    }
    // A process that was stopped meanwhile looks once more: nobody kept the lock from it.
    for (bool is_last = false;
         (outcome = lock.take(context_->rank(), kLockPeriod)) == Outcome::Busy;
         is_last = deadline.expired()) {
      if (is_last) {
        throw TimeoutError(fmt::format(
            "{}: the {} of rank {} was not free for {:.1f} s (BLUEFOG_TIMEOUT); rank {} holds it",
            where(name), site.what == WindowWait::For::Mutex ? "mutex" : "buffer", site.rank,
            std::chrono::duration<double>(context_->settings().timeout).count(), lock.holder()));
      }
      if (wait) {  // the server's thread is not the user's
        wait->goes_on(lock.holder());
        hub_->check_interrupt();
      }
    }
    if (wait) {
      wait->is_over();
    }
  }
  if (outcome == Outcome::Inherited) {
    context_->log().warning(
        fmt::format("{}: the rank that held a lock died with it; what it was writing may be half "
                    "written",
                    where(name)));
  }
}

void WindowCore::check_not_held(int rank, std::string_view call) {
  const std::scoped_lock lock(held_mutex_);
  const auto is_it = [rank, thread = std::this_thread::get_id()](const HeldMutex& held) {
    return held.rank == rank && held.thread == thread;
  };
  if (std::ranges::any_of(held_, is_it)) {
    throw StateError(fmt::format(
        "{}: expected a thread that does not hold the mutex of rank {}, found one that does: it "
        "would wait for itself",
        where(call), rank));
  }
}

void WindowCore::check_not_held(std::span<const WeightedRank> ranks, std::string_view call) {
  for (const WeightedRank& item : ranks) {
    check_not_held(item.rank, call);
  }
}

std::uint64_t WindowCore::take_mutex(int rank, WindowCall& call) {
  check_not_held(rank, call.name());
  std::uint64_t ticket = 0;
  if (const WindowMemory* const memory = reachable(rank, call.name())) {
    take_in_time(memory->mutex(), {.call = &call, .what = WindowWait::For::Mutex, .rank = rank});
  } else {
    ticket = ask(call, WindowWait::For::Mutex, rank, {.kind = WindowMessage::Kind::Lock}).ticket;
  }
  const std::scoped_lock lock(held_mutex_);
  // One holder at a time: what else stands there, a thread that has ended did not release.
  std::erase_if(held_, [rank](const HeldMutex& mutex) { return mutex.rank == rank; });
  held_.push_back({.rank = rank, .ticket = ticket, .thread = std::this_thread::get_id()});
  return ticket;
}

void WindowCore::release_mutex(int rank, std::uint64_t ticket) noexcept {
  const std::scoped_lock lock(held_mutex_);
  const auto held = std::ranges::find_if(held_, [&](const HeldMutex& mutex) {
    return mutex.rank == rank && mutex.ticket == ticket;
  });
  if (held == held_.end()) {
    return;  // `close` has released it
  }
  if (!part(rank).memory) {
    hub_->server()->tell(
        rank, {.kind = WindowMessage::Kind::Unlock, .window = number_, .ticket = ticket});
  } else if (!part(rank).memory->mutex().release()) {
    context_->log().error(fmt::format(
        "{}: the mutex of rank {} has to be released by the thread that took it; it stays taken "
        "until that thread ends",
        where("mutex"), rank));
    return;
  }
  held_.erase(held);
}

// A lock that outlives its window would release what lies in its place by then.
void WindowCore::release_own_mutexes() {
  std::unique_lock lock(held_mutex_);
  const auto held = held_;
  lock.unlock();
  for (const HeldMutex& mutex : held) {
    if (mutex.thread == std::this_thread::get_id()) {
      release_mutex(mutex.rank, mutex.ticket);
    }
  }
}

// Only the thread that has taken a mutex can release it.
std::string WindowCore::obstacle_to_freeing() {
  if (peers_ != nullptr && !placed("win_free", [this] { return peers_->is_idle(); })) {
    return fmt::format("work of rank {} is still under way on CUDA device {}", context_->rank(),
                       tensor_.device.index);
  }
  const std::scoped_lock lock(held_mutex_);
  const auto other = std::ranges::find_if(held_, [](const HeldMutex& mutex) {
    return mutex.thread != std::this_thread::get_id();
  });
  return other == held_.end()
             ? std::string()
             : fmt::format("another thread of rank {} holds the mutex of rank {}",
                           context_->rank(), other->rank);
}

}  // namespace bluefog::ops
