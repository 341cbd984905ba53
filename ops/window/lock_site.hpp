#pragma once

#include "bluefog_cpp/transport/robust_lock.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_memory.hpp"

namespace bluefog::ops {

/// A place where a call of a window takes locks, which it waits for as long as the context allows.
struct LockSite {
  const WindowIdentity& window;
  /// Null for the server's thread.
  WindowCall* call = nullptr;
  WindowWait::For what = WindowWait::For::Buffer;
  /// The rank whose memory the locks lie in.
  int rank = 0;

  /// Takes `lock`. @throws TimeoutError, and what the user's check throws.
  void take(shm::RobustLock& lock) const;
  /// `take`, as long as the site is there.
  [[nodiscard]] TakeLock taker() const {
    return [this](shm::RobustLock& lock) { take(lock); };
  }
};

}  // namespace bluefog::ops
