#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "bluefog_cpp/one_sided/window_message.hpp"

namespace bluefog {

/// The mutexes of this rank's windows that other ranks have asked for: who waits, and for whom the
/// server holds one. Not thread-safe; mutexes are taken and released by the server's thread alone.
class WindowLocks {
 public:
  /// The windows of this rank by their numbers.
  using Targets = std::map<std::uint32_t, std::shared_ptr<WindowTarget>>;
  /// Sends an answer to a request of `peer`.
  using Answer = std::function<void(int peer, const WindowMessage& answer)>;

  WindowLocks(const Targets& targets, Answer answer);

  /// A request of `peer` for a window's mutex: answered `Done` by `serve` once it is taken, with
  /// `Held` as often as its holder changes before.
  void ask(int peer, const WindowMessage& request);
  /// Takes the mutexes that are free for those that wait, and releases those of windows that are
  /// targets no more. @return whether any was released.
  bool serve();
  /// The request with this number is over: the mutex is released, or not waited for any more.
  void unlock(int peer, std::uint64_t ticket);
  /// The window goes: whoever waits for its mutex is answered `Gone`.
  void refuse(std::uint32_t window);
  /// The peer is gone: all of its mutexes are released.
  void drop(int peer);

  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  /// Whether the server holds the window's mutex for a peer.
  [[nodiscard]] bool holds(std::uint32_t window) const;

 private:
  struct Asked {
    int peer = 0;
    WindowMessage request{};
    /// The window, once its mutex has been taken.
    std::shared_ptr<WindowTarget> target{};
    /// The holder that was reported to the asker.
    int reported_holder = -1;
  };

  /// @return whether the request waits no more.
  bool try_to_take(Asked& asked);
  void answer(const Asked& asked, WindowMessage::Kind kind, int holder = -1) const;

  const Targets& targets_;
  Answer answer_;
  std::deque<Asked> waiting_;
  std::deque<Asked> held_;
};

}  // namespace bluefog
