#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/call_key.hpp"
#include "bluefog_cpp/engine/exchange/routes.hpp"
#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// The other ranks of one context, and the transports that lead to them.
///
/// Used under the engine's mutex.
class Peers {
 public:
  Peers(int rank, int size, std::vector<std::unique_ptr<Transport>> transports, Routes routes);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const Routes& routes() const noexcept { return routes_; }
  /// Null for this rank, and for all of them after `close`.
  [[nodiscard]] Transport* route_to(int peer) const noexcept {
    return routes_[static_cast<std::size_t>(peer)];
  }

  /// Drives all transfers. @return whether anything moved.
  bool progress() {
    bool moved = false;
    for (const auto& transport : transports_) {
      moved |= transport->progress();
    }
    return moved;
  }
  /// Whether some transport has to be polled, as its events wake nobody.
  [[nodiscard]] bool needs_polling() const noexcept;
  /// Whether something of this rank needs `progress` to get to its reader.
  [[nodiscard]] bool has_pending() const;

  /// From now on `bell` is rung by transports that move bytes while nobody looks; null: none.
  void ring(Doorbell* bell) {
    ringing_.clear();
    for (const auto& transport : transports_) {
      if (transport->ring(bell)) {
        ringing_.push_back(transport.get());
      }
    }
  }
  /// Whoever drove stops looking. Every call ends with it.
  void watch(Transport::Watch watch) const {
    for (Transport* const transport : ringing_) {
      transport->watch(watch);
    }
  }

  /// Shows the peers which call this rank makes now.
  void note_call(CallId id, OpKind kind) {
    for (const auto& transport : transports_) {
      transport->note_call(id, kind);
    }
  }
  /// Shows them that its calls of all ranks before `first_under_way` have ended.
  void note_end(std::uint64_t first_under_way) const noexcept {
    for (const auto& transport : transports_) {
      transport->note_end(first_under_way);
    }
  }
  /// Shows them whom this rank's only thread waits for.
  void note_wait(Transport::Wait wait) const noexcept {
    for (const auto& transport : transports_) {
      transport->note_wait(wait);
    }
  }
  /// The calls that `peer` shows to be in; nothing where that cannot be seen.
  [[nodiscard]] std::optional<Transport::Standing> standing_of(int peer) const {
    const Transport* const route = route_to(peer);
    return route == nullptr ? std::nullopt : route->standing_of(peer);
  }

  /// Sends a control message about `call` to every rank that makes it.
  void report(CallKey call, std::string_view reason, ControlMessage::Kind kind);
  /// Gives each control message that has come to `receive(source, message)`.
  /// @return whether one has.
  template <typename Receive>
  bool receive_reports(Receive receive) {
    bool moved = false;
    for (const auto& transport : transports_) {
      while (auto report = transport->poll_control()) {
        receive(report->first, std::move(report->second));
        moved = true;
      }
    }
    return moved;
  }

  /// Why `peer` will not come any more, or nothing while it lives.
  [[nodiscard]] std::optional<std::string> cause_of_death(int peer) const;
  /// Whether the process of that rank is known to have ended without leaving the group.
  [[nodiscard]] bool has_died(int peer) const;
  /// Whether the process of another rank is known to have ended without leaving the group.
  [[nodiscard]] bool has_dead_peer() const;
  /// The last call that `peer` is known to have begun, after a look at what has come from it: call
  /// 0 where none is.
  [[nodiscard]] Transport::SeenCall latest_call(int peer) const;

  /// Gives the transports back: peers that wait for this rank are notified.
  void close() noexcept;

 private:
  int rank_;
  int size_;
  std::vector<std::unique_ptr<Transport>> transports_;
  /// The transports that ring a bell.
  std::vector<Transport*> ringing_;
  Routes routes_;
};

}  // namespace bluefog
