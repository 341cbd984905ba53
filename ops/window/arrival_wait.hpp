#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "bluefog_cpp/deadline.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_memory.hpp"
#include "ops/window/window_parts.hpp"

namespace bluefog::ops {

/// A wait of a rank for what its sources put into its buffers, of one call. Nobody tells it of a
/// value: it looks at the buffers' stamps.
class ArrivalWait {
 public:
  /// @param longest the time for all sources together; absent: as long as the context allows, whose
  ///   end is a TimeoutError.
  ArrivalWait(const WindowIdentity& window, const WindowParts& parts, const WindowMemory& own,
              WindowCall& call, std::optional<std::chrono::nanoseconds> longest);

  /// Waits for a stamp of at least `stamp` in the buffer of `source`. @return whether it has come.
  /// @throws TimeoutError, WindowGoneError, PeerFailure.
  [[nodiscard]] bool wait_for(int source, std::int64_t stamp) const;

 private:
  /// Whether `source` may still come. @throws WindowGoneError, PeerFailure.
  void check_presence(int source, Deadline& next_question) const;
  [[noreturn]] void give_up(int source, std::int64_t stamp) const;
  [[nodiscard]] std::int64_t stamp_of(int source) const;

  const WindowIdentity& window_;
  const WindowParts& parts_;
  const WindowMemory& own_;
  WindowCall& call_;
  std::optional<std::chrono::nanoseconds> longest_;
  Deadline deadline_;
};

}  // namespace bluefog::ops
