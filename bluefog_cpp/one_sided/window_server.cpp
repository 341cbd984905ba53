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
      peers_(static_cast<std::size_t>(size)),
      locks_(targets_,
             [this](int to, const WindowMessage& head) { peer(to).link->post({.head = head}); }) {
  for (int other = 0; other < size; ++other) {
    peer(other).link = std::make_unique<WindowLink>(
        *network_, rank_, other,
        WindowLink::Ends{
            .room = [this](const WindowMessage& message) { return requests_.room_for(message); },
            .serve = [this, other](
                         const WindowMessage& message,
                         std::span<const std::byte> payload) { serve(other, message, payload); }});
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
  locks_.refuse(window);
  wake_thread();
  if (target.empty()) {
    return;
  }
  for (const Peer& peer : peers_) {
    peer.link->copy_payloads_of(target.mapped());
  }
  // Mutexes that the thread holds for others lie in the window's memory, and only that thread can
  // release them.
  has_answer_.wait(lock, [&] { return is_closed_ || !failure_.empty() || !locks_.holds(window); });
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
bool WindowServer::send_at_once(WindowLink& link) {
  try {
    link.send();
    return !link.has_posted();
  } catch (const Error&) {
    return false;  // the thread says so to all that wait
  }
}

WindowServer::Answer WindowServer::ask(int rank, WindowMessage request,
                                       std::span<const std::byte> payload,
                                       std::span<std::byte> room, const Asker& asker) {
  Request pending{.peer = rank, .room = room};
  const auto where = [&, kind = request.kind] { return describe(asker, kind, rank); };
  std::unique_lock lock = enter();
  if (is_closed_) {
    throw StateError(fmt::format("{}: the context is closed", where()));
  }
  Peer& to = peer(rank);
  if (to.is_gone) {
    throw_failure(rank, to.has_left,
                  fmt::format("{}: {}", where(),
                              network_->cause_of_death(rank).value_or("that rank is gone")));
  }
  requests_.open(pending);
  request.ticket = pending.ticket;
  request.bytes = payload.size();
  to.link->post({.head = request, .payload = payload, .request = &pending});
  if (network_->needs_polling() || !send_at_once(*to.link)) {
    wake_thread();
  }
  try {
    wait_for(lock, pending, request.kind, asker);
    requests_.close(pending);
  } catch (...) {
    give_up(pending);
    if (request.kind == WindowMessage::Kind::Lock && !is_closed_ && !to.is_gone) {
      // The peer is told not to give it the mutex after all.
      request.kind = WindowMessage::Kind::Unlock;
      to.link->post({.head = request});
      wake_thread();
    }
    throw;
  }
  const WindowMessage& answer = *pending.answer;
  if (answer.kind == WindowMessage::Kind::Gone) {
    throw WindowGoneError(
        rank, fmt::format("{}: rank {} has freed or destroyed it, or has ended", where(), rank));
  }
  if (answer.kind == WindowMessage::Kind::Failed) {
    throw_failure(rank, to.has_left, fmt::format("{}: {}", where(), answer.text.data()));
  }
  return {.mass = answer.mass, .ticket = request.ticket};
}

void WindowServer::throw_failure(int rank, bool has_left, const std::string& text) {
  if (has_left) {
    throw PeerHasLeft(rank, text);
  }
  throw PeerFailure(rank, text);
}

void WindowServer::notify(int rank, const WindowMessage& request) {
  const auto lock = enter();
  const Peer& to = peer(rank);
  if (!to.is_gone) {
    to.link->post({.head = request});
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

void WindowServer::give_up(const Request& request) {
  requests_.close(request);
  peer(request.peer).link->let_go_of(&request);
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
