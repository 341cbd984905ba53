#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/one_sided/window_link.hpp"
#include "bluefog_cpp/one_sided/window_locks.hpp"
#include "bluefog_cpp/one_sided/window_message.hpp"
#include "bluefog_cpp/one_sided/window_requests.hpp"
#include "bluefog_cpp/transport/doorbell.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// Sends requests to windows of ranks that share no memory with this one, and serves theirs.
///
/// A thread of its own sends, receives and serves, so that a request is answered while this rank
/// computes, within about one poll period. Thread-safe.
class WindowServer {
 public:
  /// @param network a transport that nobody else uses.
  /// @param check_interrupt called about every 50 ms by threads that wait.
  WindowServer(std::unique_ptr<Transport> network, int rank, int size,
               std::chrono::nanoseconds poll_period, std::function<void()> check_interrupt);
  WindowServer(const WindowServer&) = delete;
  WindowServer& operator=(const WindowServer&) = delete;
  ~WindowServer();

  /// Requests for `window` go to `target`, until `remove`.
  void add(std::uint32_t window, std::shared_ptr<WindowTarget> target);
  /// Takes the target away. Nothing of it is used any more when this returns: payloads that peers
  /// have not taken yet are copied. Waits for the server's thread, never for a peer.
  void remove(std::uint32_t window);

  struct Answer {
    double mass = 0.0;
    /// The number of the request: an `Unlock` carries that of its `Lock`.
    std::uint64_t ticket = 0;
  };
  /// The call on whose behalf something is asked.
  struct Asker {
    Deadline deadline;
    /// Rank, window and call, for messages.
    std::function<std::string()> where;
    /// Called about every 50 ms until the answer comes, with the rank that holds the mutex that was
    /// asked for, or -1.
    std::function<void(int holder)> waiting;
  };
  /// Sends a request with its payload to `rank`, and waits for the answer.
  /// @param room the memory for the answer's payload, of exactly its size.
  /// @throws WindowGoneError; PeerHasLeft; PeerFailure, also with what the peer said; TimeoutError;
  ///   StateError.
  Answer ask(int rank, WindowMessage request, std::span<const std::byte> payload,
             std::span<std::byte> room, const Asker& asker);
  /// Sends a request that nobody answers.
  void notify(int rank, const WindowMessage& request);

  /// Makes requests under way fail with StateError. Idempotent.
  void close() noexcept;

 private:
  /// The period at which waiting threads and the server look for dead peers.
  static constexpr std::chrono::milliseconds kAliveCheckPeriod{50};

  using Request = WindowRequests::Request;

  struct Peer {
    std::unique_ptr<WindowLink> link{};
    bool is_gone = false;
    /// The peer has closed its context.
    bool has_left = false;
  };

  [[nodiscard]] Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  /// There is something to send.
  void wake_thread();
  /// @throws PeerHasLeft, PeerFailure.
  [[noreturn]] static void throw_failure(int rank, bool has_left, const std::string& text);
  /// Takes `mutex_`, in all threads but the server's.
  [[nodiscard]] std::unique_lock<std::mutex> enter() const;

  // The thread (window_server_thread.cpp).
  void work();
  void let_callers_in(std::unique_lock<std::mutex>& lock);
  void sleep(std::unique_lock<std::mutex>& lock);
  bool step();
  /// @return whether nothing waits any more.
  bool send_at_once(WindowLink& link);
  void serve(int rank, const WindowMessage& message, std::span<const std::byte> payload);
  void serve_target(int rank, const WindowMessage& message, std::span<const std::byte> payload,
                    const std::shared_ptr<WindowTarget>& target);
  void answer(int rank, const WindowMessage& request, WindowMessage::Kind kind,
              std::string_view text = {});
  void end_calls_on_dead_peers();
  /// Ends what waits for `rank`, and releases what it holds.
  void end_calls_on(int rank, std::string_view reason);
  [[nodiscard]] bool may_move(std::size_t rank) const noexcept;
  [[nodiscard]] bool is_quiet() const;
  void wait_for(std::unique_lock<std::mutex>& lock, const Request& request,
                WindowMessage::Kind kind, const Asker& asker);
  /// Lets go of the request: the caller's memory is not read or written any more.
  void give_up(const Request& request);

  /// Rung by the network and by callers, where the network needs no polling.
  Doorbell bell_{};
  std::unique_ptr<Transport> network_;
  int rank_;
  std::chrono::nanoseconds poll_period_;
  std::function<void()> check_interrupt_;

  mutable std::mutex mutex_;
  /// The number of threads that want `mutex_`, besides the server's.
  mutable std::atomic<int> callers_{0};
  /// A request was answered since the server's thread last stepped aside.
  bool has_answered_ = false;
  /// Something is to be sent that the thread has not seen.
  bool has_request_ = false;
  /// Signals that there is something to send, or the end.
  std::condition_variable has_work_;
  /// Signals that a request has been answered.
  std::condition_variable has_answer_;
  std::vector<Peer> peers_;
  WindowLocks::Targets targets_;
  WindowLocks locks_;
  WindowRequests requests_;
  bool is_closed_ = false;
  /// The reason why the thread has ended by itself.
  std::string failure_;
  std::thread thread_;
};

}  // namespace bluefog
