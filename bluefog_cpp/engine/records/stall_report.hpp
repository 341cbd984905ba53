#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "bluefog_cpp/engine/call_queue.hpp"
#include "bluefog_cpp/engine/context_family.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/engine/peers.hpp"
#include "bluefog_cpp/engine/waiter.hpp"

namespace bluefog {

/// Says of a call that does not end whom it waits for, and what that rank does instead.
///
/// Used under the engine's mutex.
class StallReport {
 public:
  /// @param engine the one whose calls these are.
  /// @param family null where the context has none.
  StallReport(const Peers& peers, const CallQueue& queue, const Engine& engine,
              std::shared_ptr<ContextFamily> family);

  /// "call 5, barrier, has been waiting for 60.0 s: no message from rank 1 (…)".
  [[nodiscard]] std::string warning(const Operation& operation,
                                    std::chrono::milliseconds waited) const;
  /// A TimeoutError. @param policy that of the wait in which nothing moved.
  [[nodiscard]] std::exception_ptr timeout_error(const Operation& operation,
                                                 const WaitPolicy& policy) const;
  /// A PeerFailure: the call waits for `rank`, which will not come any more.
  [[nodiscard]] std::exception_ptr death_error(const Operation& operation, int rank,
                                               const std::string& cause_of_death) const;

 private:
  [[nodiscard]] std::string awaited_text(const Operation& operation) const;
  /// Text about what `rank` has begun in related contexts; empty if nothing is known of.
  [[nodiscard]] std::string ahead_elsewhere(int rank) const;

  const Peers& peers_;
  const CallQueue& queue_;
  const Engine& engine_;
  std::shared_ptr<ContextFamily> family_;
};

}  // namespace bluefog
