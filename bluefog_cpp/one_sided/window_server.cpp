#include "bluefog_cpp/one_sided/window_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

std::string describe(const WindowServer::Asker& asker, WindowMessage::Kind kind, int peer) {
  return fmt::format("{}, {}rank {}", asker.where(),
                     kind == WindowMessage::Kind::Lock ? "mutex of " : "", peer);
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
  network_->ring(&bell_);
  thread_ = std::thread([this] { work(); });
}

WindowServer::~WindowServer() { close(); }

void WindowServer::add(std::uint32_t window, std::shared_ptr<WindowTarget> target) {
  const auto lock = enter();
  targets_[window] = std::move(target);
}

void WindowServer::remove(std::uint32_t window) {
  std::unique_lock lock = enter();
  const auto target = targets_.extract(window);
  const auto is_of_window = [&](const AskedLock& asked) { return asked.request.window == window; };
  for (const AskedLock& asked : waiting_locks_) {
    if (is_of_window(asked)) {
      answer(asked.peer, asked.request, WindowMessage::Kind::Gone);
    }
  }
  std::erase_if(waiting_locks_, is_of_window);
  wake_thread();
  if (target.empty()) {
    return;
  }
  for (Peer& peer : peers_) {
    for (Parcel& parcel : peer.out) {
      if (parcel.owner == target.mapped()) {
        copy_payload(parcel);
      }
    }
  }
  // Mutexes that the thread holds for others lie in the window's memory, and only that thread can
  // release them.
  has_answer_.wait(lock, [&] {
    return is_closed_ || !failure_.empty() || std::ranges::none_of(held_locks_, is_of_window);
  });
}

void WindowServer::copy_payload(Parcel& parcel) {
  if (parcel.copy.empty()) {
    parcel.copy.assign(parcel.payload.begin(), parcel.payload.end());
    parcel.payload = parcel.copy;
  }
  if (parcel.departure && parcel.head_is_out) {
    parcel.departure->data = parcel.copy.data();
  }
  parcel.owner.reset();
  parcel.request = nullptr;
}

void WindowServer::wake_thread() {
  has_request_ = true;
  has_work_.notify_all();
  bell_.ring();
}

// ---- asking

std::unique_lock<std::mutex> WindowServer::enter() const {
  callers_.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  callers_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

// A caller sends its request itself, which spares a change of threads.
bool WindowServer::send_at_once(Peer& peer) {
  try {
    send(peer);
    return peer.out.empty();
  } catch (const Error&) {
    return false;  // the thread says so to all that wait
  }
}

WindowServer::Answer WindowServer::ask(int peer, WindowMessage request,
                                       std::span<const std::byte> payload,
                                       std::span<std::byte> room, const Asker& asker) {
  Request pending{.peer = peer, .room = room};
  const auto where = [&, kind = request.kind] { return describe(asker, kind, peer); };
  std::unique_lock lock = enter();
  if (is_closed_) {
    throw StateError(fmt::format("{}: the context is closed", where()));
  }
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (to.is_gone) {
    throw_failure(peer, to.has_left,
                  fmt::format("{}: {}", where(),
                              network_->cause_of_death(peer).value_or("that rank is gone")));
  }
  request.ticket = next_ticket_++;
  request.bytes = payload.size();
  requests_[request.ticket] = &pending;
  to.out.push_back({.head = request, .payload = payload, .request = &pending});
  if (network_->needs_polling() || !send_at_once(to)) {
    wake_thread();
  }
  try {
    wait_for(lock, pending, request.kind, asker);
    requests_.erase(request.ticket);
  } catch (...) {
    give_up(pending, request.ticket);
    if (request.kind == WindowMessage::Kind::Lock && !is_closed_ && !to.is_gone) {
      // The peer is told not to give it the mutex after all.
      request.kind = WindowMessage::Kind::Unlock;
      to.out.push_back({.head = request});
      wake_thread();
    }
    throw;
  }
  const WindowMessage& answer = *pending.answer;
  if (answer.kind == WindowMessage::Kind::Gone) {
    throw WindowGoneError(
        peer, fmt::format("{}: rank {} has freed or destroyed it, or has ended", where(), peer));
  }
  if (answer.kind == WindowMessage::Kind::Failed) {
    throw_failure(peer, to.has_left, fmt::format("{}: {}", where(), answer.text.data()));
  }
  return {.mass = answer.mass, .ticket = request.ticket};
}

void WindowServer::throw_failure(int rank, bool has_left, const std::string& text) {
  if (has_left) {
    throw PeerHasLeft(rank, text);
  }
  throw PeerFailure(rank, text);
}

void WindowServer::notify(int peer, const WindowMessage& request) {
  const auto lock = enter();
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (!to.is_gone) {
    to.out.push_back({.head = request});
    wake_thread();
  }
}

void WindowServer::wait_for(std::unique_lock<std::mutex>& lock, const Request& request,
                            WindowMessage::Kind kind, const Asker& asker) {
  const auto where = [&] { return describe(asker, kind, request.peer); };
  const auto begun = Deadline::Clock::now();
  while (
      !has_answer_.wait_for(lock, kAliveCheckPeriod, [&] { return request.answer.has_value(); })) {
    if (is_closed_) {
      throw StateError(fmt::format("{}: the context was closed", where()));
    }
    if (!failure_.empty()) {
      throw TransportError(fmt::format("{}: {}", where(), failure_));
    }
    if (auto cause_of_death = network_->cause_of_death(request.peer)) {
      throw_failure(
          request.peer, network_->has_left(request.peer),
          fmt::format("{}: waited for rank {}, but {}", where(), request.peer, *cause_of_death));
    }
    if (asker.deadline.expired()) {
      throw TimeoutError(
          fmt::format("{}: no answer for {:.1f} s (BLUEFOG_TIMEOUT); {}{}", where(),
                      std::chrono::duration<double>(Deadline::Clock::now() - begun).count(),
                      request.holder < 0 ? "" : fmt::format("rank {} holds it; ", request.holder),
                      network_->last_seen(request.peer)));
    }
    const int holder = request.holder;
    lock.unlock();
    std::exception_ptr interruption;
    try {
      check_interrupt_();
      asker.waiting(holder);
    } catch (...) {
      interruption = std::current_exception();
    }
    lock.lock();
    if (interruption) {
      std::rethrow_exception(interruption);
    }
  }
}

void WindowServer::give_up(const Request& request, std::uint64_t ticket) {
  requests_.erase(ticket);
  auto& out = peers_[static_cast<std::size_t>(request.peer)].out;
  const auto is_own = [&](const Parcel& parcel) { return parcel.request == &request; };
  const auto has_begun = [](const Parcel& parcel) {
    return parcel.departure || parcel.head_is_out;
  };
  std::erase_if(out, [&](const Parcel& parcel) { return is_own(parcel) && !has_begun(parcel); });
  if (const auto begun = std::ranges::find_if(out, is_own); begun != out.end()) {
    copy_payload(*begun);  // the peer waits for the rest of it
  }
}

void WindowServer::close() noexcept {
  {
    const auto lock = enter();
    is_closed_ = true;
    wake_thread();
    has_answer_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  const auto lock = enter();
  targets_.clear();
  network_.reset();
}

}  // namespace bluefog
