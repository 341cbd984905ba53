// The server's thread: it sends, receives and serves.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bluefog_cpp/base/prepare_to_throw.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/one_sided/window_server.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::microseconds kBusyPause{50};
/// One request rarely comes alone, and waking a thread takes longer than a message.
constexpr std::chrono::microseconds kLinger{100};
/// The thread wakes as often as dead peers are looked for.
constexpr std::chrono::microseconds kSleepPeriod{50'000};

}  // namespace

void WindowServer::work() {
  prepare_to_throw();
  std::unique_lock lock(mutex_);
  auto pause = std::chrono::nanoseconds(kBusyPause);
  auto next_check = Deadline::Clock::now() + kAliveCheckPeriod;
  auto last_move = Deadline::Clock::time_point{};
  while (!is_closed_ && failure_.empty()) {
    bool moved = false;
    try {
      moved = step();
    } catch (const std::exception& e) {
      failure_ = e.what();
      has_answer_.notify_all();
      return;
    }
    const auto now = Deadline::Clock::now();
    if (moved) {
      pause = kBusyPause;
      last_move = now;
      let_callers_in(lock);
      continue;
    }
    if (now >= next_check) {
      next_check = now + kAliveCheckPeriod;
      end_calls_on_dead_peers();
    }
    if (network_->needs_polling() || locks_.has_waiting()) {
      has_work_.wait_for(lock, pause);
      pause = is_quiet() ? poll_period_ : std::min(2 * pause, poll_period_);
    } else if (now - last_move < kLinger) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else {
      sleep(lock);
    }
  }
}

// Sleeps until a caller or the network rings.
void WindowServer::sleep(std::unique_lock<std::mutex>& lock) {
  const Doorbell::Sleeper sleeper(bell_);
  for (const std::chrono::microseconds time : {Doorbell::kFirstSleep, kSleepPeriod}) {
    const std::uint32_t ticket = sleeper.ticket();
    if (is_closed_ || has_request_ || network_->progress()) {
      break;
    }
    network_->watch(Transport::Watch::ForSleeper);
    lock.unlock();
    const bool has_rung = sleeper.sleep(ticket, time);
    lock.lock();
    if (has_rung) {
      break;
    }
  }
  has_request_ = false;
}

// A thread that takes a mutex again at once wins against all that have to be woken for it, so the
// server steps aside; but not where nobody wants the mutex: the processor would go to whoever
// computes on it, for a whole time slice, at every piece of a long message.
void WindowServer::let_callers_in(std::unique_lock<std::mutex>& lock) {
  if (callers_.load(std::memory_order_relaxed) > 0) {
    has_work_.wait_for(lock, kBusyPause);
    return;
  }
  lock.unlock();
  if (std::exchange(has_answered_, false)) {
    std::this_thread::yield();
  }
  lock.lock();
}

bool WindowServer::is_quiet() const {
  return requests_.empty() &&
         std::ranges::all_of(peers_, [](const Peer& peer) { return peer.link->is_quiet(); });
}

bool WindowServer::may_move(std::size_t rank) const noexcept {
  const int peer = static_cast<int>(rank);
  return peer != rank_ && network_->reaches(peer) && !peers_[rank].is_gone;
}

bool WindowServer::step() {
  bool moved = network_->progress();
  while (network_->poll_control()) {
  }
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (!may_move(rank)) {
      continue;
    }
    try {
      moved |= peers_[rank].link->send();
      moved |= peers_[rank].link->receive();
    } catch (const PeerFailure& failure) {
      end_calls_on(static_cast<int>(rank), failure.what());
    }
  }
  if (locks_.serve()) {
    has_answer_.notify_all();
  }
  return moved;
}

// ---- serving

void WindowServer::serve(int rank, const WindowMessage& message,
                         std::span<const std::byte> payload) {
  using Kind = WindowMessage::Kind;
  if (WindowRequests::is_for_asker(message.kind)) {
    if (requests_.take(message)) {
      has_answered_ = true;
      has_answer_.notify_all();
    }
    return;
  }
  const auto found = targets_.find(message.window);
  if (found == targets_.end()) {
    if (message.kind != Kind::Unlock && message.kind != Kind::Stamp) {
      answer(rank, message, Kind::Gone);
    }
    return;
  }
  const std::shared_ptr<WindowTarget> target = found->second;
  try {
    serve_target(rank, message, payload, target);
  } catch (const std::exception& e) {
    answer(rank, message, Kind::Failed, e.what());
  }
}

void WindowServer::serve_target(int rank, const WindowMessage& message,
                                std::span<const std::byte> payload,
                                const std::shared_ptr<WindowTarget>& target) {
  using Kind = WindowMessage::Kind;
  switch (message.kind) {
    case Kind::Put:
    case Kind::Accumulate:
      target->store(rank, message, payload.first(message.bytes));
      answer(rank, message, Kind::Done);
      break;
    case Kind::Get: {
      WindowLink::Parcel parcel{.head = message, .owner = target};
      parcel.head.kind = Kind::Done;
      parcel.payload = target->load(rank, parcel.head.mass, parcel.copy);
      parcel.head.bytes = parcel.payload.size();
      peer(rank).link->post(std::move(parcel));
      break;
    }
    case Kind::Presence:
      answer(rank, message, Kind::Done);
      break;
    case Kind::Stamp:
      target->set_stamp(rank, message.stamp);
      break;
    case Kind::Lock:
      locks_.ask(rank, message);
      break;
    case Kind::Unlock:
      locks_.unlock(rank, message.ticket);
      break;
    case Kind::Done:
    case Kind::Failed:
    case Kind::Gone:
    case Kind::Held:
      break;
  }
}

void WindowServer::answer(int rank, const WindowMessage& request, WindowMessage::Kind kind,
                          std::string_view text) {
  WindowMessage head{.kind = kind, .window = request.window, .ticket = request.ticket};
  text.copy(head.text.data(), head.text.size() - 1);
  peer(rank).link->post({.head = head});
}

void WindowServer::end_calls_on_dead_peers() {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (!may_move(rank)) {
      continue;
    }
    if (const auto cause = network_->cause_of_death(static_cast<int>(rank))) {
      end_calls_on(static_cast<int>(rank), *cause);
    }
  }
}

void WindowServer::end_calls_on(int rank, std::string_view reason) {
  Peer& dead = peer(rank);
  dead.is_gone = true;
  dead.has_left = network_->has_left(rank);
  dead.link->drop_posted();
  requests_.fail(rank, reason);
  has_answer_.notify_all();
  locks_.drop(rank);
}

}  // namespace bluefog
