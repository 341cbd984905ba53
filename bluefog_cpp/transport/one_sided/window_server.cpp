#include "bluefog_cpp/transport/one_sided/window_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/one_sided/window_gone.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kAliveCheckPeriod{50};
constexpr std::chrono::microseconds kBusyPause{50};
constexpr Lane kLane = Lane::Ordinary;

std::string_view name_of(WindowMessage::Kind kind) {
  switch (kind) {
    case WindowMessage::Kind::Put:
      return "put";
    case WindowMessage::Kind::Accumulate:
      return "accumulate";
    case WindowMessage::Kind::Get:
      return "get";
    case WindowMessage::Kind::Lock:
    case WindowMessage::Kind::Unlock:
      return "mutex";
    case WindowMessage::Kind::Done:
    case WindowMessage::Kind::Failed:
    case WindowMessage::Kind::Gone:
    case WindowMessage::Kind::Held:
      return "answer";
  }
  return "message";
}

std::span<const std::byte> bytes_of(const WindowMessage& message) {
  return std::as_bytes(std::span(&message, 1));
}

}  // namespace

WindowServer::WindowServer(std::unique_ptr<Transport> network, int rank, int size,
                           std::chrono::nanoseconds poll_period,
                           std::function<void()> check_interrupt)
    : network_(std::move(network)),
      rank_(rank),
      poll_period_(poll_period),
      check_interrupt_(std::move(check_interrupt)),
      peers_(static_cast<std::size_t>(size)) {
  for (int peer = 0; peer < size; ++peer) {
    peers_[static_cast<std::size_t>(peer)].reader = {{.rank = peer}};
  }
  thread_ = std::thread([this] { work(); });
}

WindowServer::~WindowServer() { close(); }

void WindowServer::add(std::uint32_t window, std::shared_ptr<WindowTarget> target) {
  const std::scoped_lock lock(mutex_);
  targets_[window] = std::move(target);
}

void WindowServer::remove(std::uint32_t window) {
  std::unique_lock lock(mutex_);
  const auto target = targets_.extract(window);
  const auto is_of_window = [&](const AskedLock& asked) { return asked.request.window == window; };
  for (const AskedLock& asked : waiting_locks_) {
    if (is_of_window(asked)) {
      answer(asked.peer, asked.request, WindowMessage::Kind::Gone);
    }
  }
  std::erase_if(waiting_locks_, is_of_window);
  has_work_.notify_one();
  if (target.empty()) {
    return;
  }
  // What is being sent to askers lies in the window's memory, and so do mutexes that the thread
  // holds for others, whose release may still be on its way: they must not be in use when the
  // memory is used again.
  const auto is_sent = [&](const Peer& peer) {
    return std::ranges::none_of(
        peer.out, [&](const Parcel& parcel) { return parcel.owner == target.mapped(); });
  };
  has_answer_.wait(lock, [&] {
    return is_closed_ || !failure_.empty() ||
           (std::ranges::all_of(peers_, is_sent) &&
            std::ranges::none_of(held_locks_, is_of_window));
  });
}

// ---- asking

WindowServer::Answer WindowServer::ask(int peer, WindowMessage request,
                                       std::span<const std::byte> payload,
                                       std::span<std::byte> room, Deadline deadline,
                                       const std::function<void(int holder)>& waiting) {
  Request pending{.peer = peer, .room = room};
  std::unique_lock lock(mutex_);
  if (is_closed_) {
    throw StateError(fmt::format("{}: the context is closed", describe(request, peer)));
  }
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (to.is_gone) {
    throw PeerFailure(peer, fmt::format("{}: {}", describe(request, peer),
                                        network_->obituary(peer).value_or("that rank is gone")));
  }
  request.ticket = next_ticket_++;
  request.bytes = payload.size();
  requests_[request.ticket] = &pending;
  to.out.push_back({.head = request, .payload = payload, .request = &pending});
  has_work_.notify_one();
  try {
    wait_for(lock, pending, request, deadline, waiting);
  } catch (...) {
    if (request.kind == WindowMessage::Kind::Lock && !is_closed_ && !to.is_gone) {
      // It must not get the mutex after all.
      request.kind = WindowMessage::Kind::Unlock;
      to.out.push_back({.head = request});
    }
    throw;
  }
  const WindowMessage& answer = *pending.answer;
  if (answer.kind == WindowMessage::Kind::Gone) {
    throw WindowGone(peer,
                     fmt::format("{}: rank {} has freed it", describe(request, peer), peer));
  }
  if (answer.kind == WindowMessage::Kind::Failed) {
    throw PeerFailure(peer, fmt::format("{}: {}", describe(request, peer), answer.text.data()));
  }
  return {.mass = answer.mass, .ticket = request.ticket};
}

void WindowServer::tell(int peer, const WindowMessage& request) {
  const std::scoped_lock lock(mutex_);
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (!to.is_gone) {
    to.out.push_back({.head = request});
    has_work_.notify_one();
  }
}

void WindowServer::wait_for(std::unique_lock<std::mutex>& lock, Request& request,
                            const WindowMessage& message, Deadline deadline,
                            const std::function<void(int holder)>& waiting) {
  try {
    while (!has_answer_.wait_for(lock, kAliveCheckPeriod,
                                 [&] { return request.answer.has_value(); })) {
      if (is_closed_) {
        throw StateError(
            fmt::format("{}: the context was closed", describe(message, request.peer)));
      }
      if (!failure_.empty()) {
        throw TransportError(fmt::format("{}: {}", describe(message, request.peer), failure_));
      }
      if (auto obituary = network_->obituary(request.peer)) {
        throw PeerFailure(request.peer,
                          fmt::format("{}: waited for rank {}, but {}",
                                      describe(message, request.peer), request.peer, *obituary));
      }
      if (deadline.expired()) {
        throw TimeoutError(fmt::format(
            "{}: no answer (BLUEFOG_TIMEOUT); {}{}", describe(message, request.peer),
            request.holder < 0 ? "" : fmt::format("rank {} holds it; ", request.holder),
            network_->last_seen(request.peer)));
      }
      const int holder = request.holder;
      lock.unlock();
      std::exception_ptr interruption;
      try {
        check_interrupt_();
        if (waiting) {
          waiting(holder);
        }
      } catch (...) {
        interruption = std::current_exception();
      }
      lock.lock();
      if (interruption) {
        std::rethrow_exception(interruption);
      }
    }
    requests_.erase(message.ticket);
  } catch (...) {
    give_up(lock, request, message.ticket);
    throw;
  }
}

// The caller's memory must not be read or written any more when its call ends.
void WindowServer::give_up(std::unique_lock<std::mutex>& lock, Request& request,
                           std::uint64_t ticket) {
  request.is_abandoned = true;
  auto& out = peers_[static_cast<std::size_t>(request.peer)].out;
  std::erase_if(out, [&](const Parcel& parcel) {
    return parcel.request == &request && !parcel.departure && !parcel.head_is_out;
  });
  has_work_.notify_one();
  has_answer_.wait(lock, [&] {
    return is_closed_ || !failure_.empty() || std::ranges::none_of(out, [&](const Parcel& parcel) {
             return parcel.request == &request;
           });
  });
  requests_.erase(ticket);
}

// ---- the thread

void WindowServer::work() {
  std::unique_lock lock(mutex_);
  auto pause = std::chrono::nanoseconds(kBusyPause);
  auto next_check = Deadline::Clock::now() + kAliveCheckPeriod;
  while (!is_closed_ && failure_.empty()) {
    bool moved = false;
    try {
      moved = step();
    } catch (const std::exception& e) {
      failure_ = e.what();
      has_answer_.notify_all();
      return;
    }
    if (moved) {
      pause = kBusyPause;
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      continue;
    }
    if (const auto now = Deadline::Clock::now(); now >= next_check) {
      next_check = now + kAliveCheckPeriod;
      bury_the_dead();
    }
    has_work_.wait_for(lock, pause);
    pause = is_quiet() ? poll_period_ : std::min(2 * pause, poll_period_);
  }
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
      bury(peer, failure.what());
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
    if (!parcel.payload.empty()) {
      const bool is_abandoned = parcel.request != nullptr && parcel.request->is_abandoned;
      if (is_abandoned && parcel.departure) {
        if (!network_->abort(*parcel.departure, "the asker gave up")) {
          return moved;
        }
      } else if (!send_part(parcel, peer, parcel.payload)) {
        return moved;
      }
    }
    if (parcel.request != nullptr || parcel.owner) {
      has_answer_.notify_all();
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
    if (it != requests_.end() && !it->second->is_abandoned &&
        it->second->room.size() == message.bytes) {
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
    if (network_->readable(rank, kLane).empty() && network_->aborted(rank, kLane)) {
      network_->finish(rank, kLane);
      in.message.reset();
      in.used = 0;
      continue;
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
        parcel.payload = target->load(rank, parcel.head.mass);
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

void WindowServer::bury_the_dead() {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    if (peer == rank_ || !network_->reaches(peer) || peers_[rank].is_gone) {
      continue;
    }
    if (const auto obituary = network_->obituary(peer)) {
      bury(peer, *obituary);
    }
  }
}

void WindowServer::bury(int peer, std::string_view reason) {
  Peer& dead = peers_[static_cast<std::size_t>(peer)];
  dead.is_gone = true;
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

void WindowServer::close() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    is_closed_ = true;
    has_work_.notify_all();
    has_answer_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  const std::scoped_lock lock(mutex_);
  targets_.clear();
  network_.reset();
}

std::string WindowServer::describe(const WindowMessage& message, int peer) const {
  return fmt::format("rank {}, window {} at rank {}", rank_, name_of(message.kind), peer);
}

}  // namespace bluefog
