#include "bluefog_cpp/transport/one_sided/window_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/one_sided/window_gone.hpp"

namespace bluefog {
namespace {

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
