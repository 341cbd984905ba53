#include "bluefog_cpp/one_sided/window_locks.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace bluefog {

WindowLocks::WindowLocks(const Targets& targets, Answer answer)
    : targets_(targets), answer_(std::move(answer)) {}

void WindowLocks::answer(const Asked& asked, WindowMessage::Kind kind, int holder) const {
  answer_(asked.peer, {.kind = kind,
                       .holder = holder,
                       .window = asked.request.window,
                       .ticket = asked.request.ticket});
}

void WindowLocks::ask(int peer, const WindowMessage& request) {
  waiting_.push_back({.peer = peer, .request = request});
}

bool WindowLocks::serve() {
  for (auto asked = waiting_.begin(); asked != waiting_.end();) {
    asked = try_to_take(*asked) ? waiting_.erase(asked) : std::next(asked);
  }
  const auto released = std::erase_if(held_, [this](const Asked& held) {
    const bool is_orphan = !targets_.contains(held.request.window);
    if (is_orphan) {
      held.target->unlock(held.peer);
    }
    return is_orphan;
  });
  return released > 0;
}

bool WindowLocks::try_to_take(Asked& asked) {
  const auto target = targets_.find(asked.request.window);
  if (target == targets_.end()) {
    return false;
  }
  if (target->second->try_lock(asked.peer)) {
    answer(asked, WindowMessage::Kind::Done);
    asked.target = target->second;
    held_.push_back(asked);
    return true;
  }
  const int holder = target->second->holder();
  if (holder >= 0 && std::exchange(asked.reported_holder, holder) != holder) {
    answer(asked, WindowMessage::Kind::Held, holder);
  }
  return false;
}

void WindowLocks::unlock(int peer, std::uint64_t ticket) {
  const auto is_it = [&](const Asked& asked) {
    return asked.peer == peer && asked.request.ticket == ticket;
  };
  std::erase_if(waiting_, is_it);
  const auto held = std::ranges::find_if(held_, is_it);
  if (held != held_.end()) {
    held->target->unlock(peer);
    held_.erase(held);
  }
}

void WindowLocks::refuse(std::uint32_t window) {
  std::erase_if(waiting_, [&](const Asked& asked) {
    const bool is_it = asked.request.window == window;
    if (is_it) {
      answer(asked, WindowMessage::Kind::Gone);
    }
    return is_it;
  });
}

void WindowLocks::drop(int peer) {
  std::erase_if(waiting_, [peer](const Asked& asked) { return asked.peer == peer; });
  std::erase_if(held_, [peer](const Asked& held) {
    if (held.peer == peer) {
      held.target->unlock(peer);
    }
    return held.peer == peer;
  });
}

bool WindowLocks::holds(std::uint32_t window) const {
  return std::ranges::any_of(held_,
                             [&](const Asked& held) { return held.request.window == window; });
}

}  // namespace bluefog
