// The server's thread: it sends, receives and serves.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/one_sided/window_server.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::microseconds kBusyPause{50};
constexpr Lane kLane = Lane::Ordinary;
/// One request rarely comes alone, and waking a thread takes longer than a message.
constexpr std::chrono::microseconds kLinger{100};
/// The thread wakes as often as dead peers are looked for.
constexpr std::chrono::microseconds kSleepPeriod{50'000};

std::span<const std::byte> bytes_of(const WindowMessage& message) {
  return std::as_bytes(std::span(&message, 1));
}

}  // namespace

void WindowServer::work() {
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
    if (network_->needs_polling() || !waiting_locks_.empty()) {
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
  return requests_.empty() && std::ranges::all_of(peers_, [](const Peer& peer) {
           return peer.out.empty() && !peer.in.message;
         });
}

bool WindowServer::step() {
  bool moved = network_->progress();
  while (network_->poll_control()) {
  }
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    if (peer == rank_ || !network_->reaches(peer) || peers_[rank].is_gone) {
      continue;
    }
    try {
      moved |= send(peers_[rank]);
      moved |= receive(peer, peers_[rank]);
    } catch (const PeerFailure& failure) {
      end_calls_on(peer, failure.what());
    }
  }
  serve_locks();
  release_orphans();
  return moved;
}

bool WindowServer::send(Peer& peer) {
  bool moved = false;
  while (!peer.out.empty()) {
    Parcel& parcel = peer.out.front();
    if (!parcel.head_is_out) {
      if (!send_part(parcel, peer, bytes_of(parcel.head))) {
        return moved;
      }
      parcel.head_is_out = true;
      moved = true;
    }
    if (!parcel.payload.empty() && !send_part(parcel, peer, parcel.payload)) {
      return moved;
    }
    peer.out.pop_front();
    moved = true;
  }
  return moved;
}

bool WindowServer::send_part(Parcel& parcel, Peer& peer, std::span<const std::byte> bytes) {
  if (!parcel.departure) {
    Departure& departure = parcel.departure.emplace();
    departure.header.id = CallId::make(next_message_++, 0);
    departure.header.bytes = bytes.size();
    departure.data = bytes.data();
    departure.readers = peer.reader;
    departure.lane = kLane;
  }
  while (!parcel.departure->complete()) {
    if (!network_->publish(*parcel.departure)) {
      return false;
    }
  }
  parcel.departure.reset();
  return true;
}

// ---- receiving

bool WindowServer::take(int rank, std::span<std::byte> room, std::size_t& used) {
  while (used < room.size()) {
    const auto here = network_->readable(rank, kLane);
    if (here.empty()) {
      return false;
    }
    const std::size_t bytes = std::min(here.size(), room.size() - used);
    std::memcpy(room.data() + used, here.data(), bytes);
    network_->consume(rank, kLane, bytes);
    used += bytes;
  }
  return network_->at_end(rank, kLane);
}

std::span<std::byte> WindowServer::room_for(const WindowMessage& message, Incoming& in) {
  if (message.kind == WindowMessage::Kind::Done) {
    const auto it = requests_.find(message.ticket);
    if (it != requests_.end() && it->second->room.size() == message.bytes) {
      return it->second->room;
    }
  }
  in.payload.resize(message.bytes);
  return in.payload;
}

bool WindowServer::receive(int rank, Peer& peer) {
  bool moved = false;
  Incoming& in = peer.in;
  while (network_->arrived(rank, kLane) != nullptr) {
    const std::uint64_t expected = in.message ? in.message->bytes : sizeof(WindowMessage);
    if (network_->arrived(rank, kLane)->bytes != expected) {
      throw InternalError(
          fmt::format("rank {}: rank {} sent {} bytes of a window's message, expected {}", rank_,
                      rank, network_->arrived(rank, kLane)->bytes, expected));
    }
    if (!in.message) {
      in.head.resize(sizeof(WindowMessage));
      if (!take(rank, in.head, in.used)) {
        return moved;
      }
      network_->finish(rank, kLane);
      in.message.emplace();
      std::memcpy(&*in.message, in.head.data(), in.head.size());
      in.used = 0;
    } else {
      const auto room = room_for(*in.message, in);
      if (!take(rank, room, in.used)) {
        return moved;
      }
      network_->finish(rank, kLane);
      in.used = room.size();
    }
    moved = true;
    if (in.used == in.message->bytes) {
      const WindowMessage message = *std::exchange(in.message, std::nullopt);
      in.used = 0;
      serve(rank, message, in.payload);
    }
  }
  return moved;
}

void WindowServer::serve(int rank, const WindowMessage& message,
                         std::span<const std::byte> payload) {
  using Kind = WindowMessage::Kind;
  if (message.kind == Kind::Done || message.kind == Kind::Failed || message.kind == Kind::Gone) {
    if (const auto it = requests_.find(message.ticket); it != requests_.end()) {
      it->second->answer = message;
      has_answered_ = true;
      has_answer_.notify_all();
    }
    return;
  }
  if (message.kind == Kind::Held) {
    if (const auto it = requests_.find(message.ticket); it != requests_.end()) {
      it->second->holder = message.holder;
    }
    return;
  }
  const auto found = targets_.find(message.window);
  if (found == targets_.end()) {
    if (message.kind != Kind::Unlock) {
      answer(rank, message, Kind::Gone);
    }
    return;
  }
  const std::shared_ptr<WindowTarget> target = found->second;
  try {
    switch (message.kind) {
      case Kind::Put:
      case Kind::Accumulate:
        target->store(rank, message, payload.first(message.bytes));
        answer(rank, message, Kind::Done);
        break;
      case Kind::Get: {
        Parcel parcel{.head = message, .owner = target};
        parcel.head.kind = Kind::Done;
        parcel.payload = target->load(rank, parcel.head.mass, parcel.copy);
        parcel.head.bytes = parcel.payload.size();
        peers_[static_cast<std::size_t>(rank)].out.push_back(std::move(parcel));
        break;
      }
      case Kind::Lock:
        waiting_locks_.push_back({.peer = rank, .request = message});
        break;
      case Kind::Unlock:
        unlock(rank, message);
        break;
      case Kind::Done:
      case Kind::Failed:
      case Kind::Gone:
      case Kind::Held:
        break;
    }
  } catch (const std::exception& e) {
    answer(rank, message, Kind::Failed, e.what());
  }
}

void WindowServer::answer(int rank, const WindowMessage& request, WindowMessage::Kind kind,
                          std::string_view text) {
  WindowMessage head{.kind = kind, .window = request.window, .ticket = request.ticket};
  text.copy(head.text.data(), head.text.size() - 1);
  peers_[static_cast<std::size_t>(rank)].out.push_back({.head = head});
}

void WindowServer::serve_locks() {
  for (auto asked = waiting_locks_.begin(); asked != waiting_locks_.end();) {
    asked = serve_lock(*asked) ? waiting_locks_.erase(asked) : std::next(asked);
  }
}

bool WindowServer::serve_lock(AskedLock& asked) {
  const auto target = targets_.find(asked.request.window);
  if (target == targets_.end()) {
    return false;
  }
  if (target->second->try_lock(asked.peer)) {
    answer(asked.peer, asked.request, WindowMessage::Kind::Done);
    asked.target = target->second;
    held_locks_.push_back(asked);
    return true;
  }
  const int holder = target->second->holder();
  if (holder >= 0 && std::exchange(asked.told_holder, holder) != holder) {
    WindowMessage word = asked.request;
    word.kind = WindowMessage::Kind::Held;
    word.holder = holder;
    peers_[static_cast<std::size_t>(asked.peer)].out.push_back({.head = word});
  }
  return false;
}

void WindowServer::unlock(int peer, const WindowMessage& message) {
  const auto is_it = [&](const AskedLock& asked) {
    return asked.peer == peer && asked.request.ticket == message.ticket;
  };
  std::erase_if(waiting_locks_, is_it);
  const auto held = std::ranges::find_if(held_locks_, is_it);
  if (held != held_locks_.end()) {
    held->target->unlock(peer);
    held_locks_.erase(held);
  }
}

void WindowServer::release_orphans() {
  const auto released = std::erase_if(held_locks_, [this](const AskedLock& held) {
    const bool is_orphan = !targets_.contains(held.request.window);
    if (is_orphan) {
      held.target->unlock(held.peer);
    }
    return is_orphan;
  });
  if (released > 0) {
    has_answer_.notify_all();
  }
}

void WindowServer::end_calls_on_dead_peers() {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    if (peer == rank_ || !network_->reaches(peer) || peers_[rank].is_gone) {
      continue;
    }
    if (const auto cause_of_death = network_->cause_of_death(peer)) {
      end_calls_on(peer, *cause_of_death);
    }
  }
}

void WindowServer::end_calls_on(int peer, std::string_view reason) {
  Peer& dead = peers_[static_cast<std::size_t>(peer)];
  dead.is_gone = true;
  dead.has_left = network_->has_left(peer);
  dead.out.clear();
  for (const auto& [ticket, request] : requests_) {
    if (request->peer == peer && !request->answer) {
      WindowMessage& answer =
          request->answer.emplace(WindowMessage{.kind = WindowMessage::Kind::Failed});
      reason.copy(answer.text.data(), answer.text.size() - 1);
    }
  }
  has_answer_.notify_all();
  std::erase_if(waiting_locks_, [peer](const auto& asked) { return asked.peer == peer; });
  std::erase_if(held_locks_, [peer](const AskedLock& held) {
    if (held.peer == peer) {
      held.target->unlock(peer);
    }
    return held.peer == peer;
  });
}

}  // namespace bluefog
