#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bluefog_cpp/engine/call_queue.hpp"
#include "bluefog_cpp/engine/context_family.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/engine/peers.hpp"

namespace bluefog {

class Engine;

/// Finds calls that wait for what no rank will ever send, from what the ranks of this host show of
/// themselves (`Transport::Standing`). Calls of two ranks alone are not looked at.
///
/// Used under the engine's mutex.
class HopelessCalls {
 public:
  /// @param engine the one whose calls these are. @param family null where the context has none.
  HopelessCalls(const Peers& peers, const CallQueue& queue, const Engine& engine,
                std::shared_ptr<ContextFamily> family);

  /// Why a rank that `operation` waits for sends nothing in this call: it makes it as another one,
  /// or has ended it. Empty while it may. A report of that rank may be on its way, and says more.
  [[nodiscard]] std::string why_unmatched(const Operation& operation) const;
  /// Why `rank` does nothing more for `call`: its cause of death. Nothing while it lives, and where
  /// its message may have come, behind one of an earlier call that waits for others.
  [[nodiscard]] std::optional<std::string> why_lost(int rank, const CallState& call,
                                                    const PeerReports& reports) const;
  /// Two ranks have waited for each other this long, or half of BLUEFOG_TIMEOUT, before they count
  /// as hopeless: a thread that has made no call yet may end the wait.
  static constexpr std::chrono::seconds kPatience{10};
  /// A rank that `operation` waits for, and that waits for this rank in a related context: neither
  /// can come. Nothing where one of the two has made calls from several threads.
  struct Deadlock {
    int rank = -1;
    /// The engine of the related context.
    Engine* engine = nullptr;
    std::uint64_t call = 0;
    /// Why `operation` cannot go on.
    std::string text{};
  };
  [[nodiscard]] std::optional<Deadlock> find_deadlock(const Operation& operation) const;
  /// The call in which `peer`, by its only thread, waits for this rank, and which this rank has not
  /// begun, as it is not before `next_call`; nothing if there is none.
  [[nodiscard]] std::optional<Transport::SeenCall> wait_for_this(int peer,
                                                                 std::uint64_t next_call) const;
  /// Shows the other ranks whom this rank waits for in `operation`, where one thread makes all its
  /// calls. @return whether it has.
  bool show_wait(const Operation& operation);

 private:
  [[nodiscard]] bool has_one_caller() const;

  const Peers& peers_;
  const CallQueue& queue_;
  const Engine& engine_;
  std::shared_ptr<ContextFamily> family_;
};

}  // namespace bluefog
