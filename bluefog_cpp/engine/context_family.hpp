#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

class Engine;

/// The engines of contexts that were copied from one another. Calls of one are in no order with
/// those of another, so a rank that is missed in one may be waiting in another.
///
/// Thread-safe.
class ContextFamily {
 public:
  /// @param engine until `remove`.
  void add(Engine& engine);
  void remove(const Engine& engine);

  /// Says what `rank` has begun in other contexts than that of `here` and this rank has not, for
  /// messages about waits that took too long; empty if nothing is known of.
  [[nodiscard]] std::string ahead_elsewhere(int rank, const Engine& here) const;

  /// The call in which `rank`, by its only thread, waits for this rank in another context than that
  /// of `here`, and which this rank has not begun, with that context's engine; null if none is
  /// known.
  [[nodiscard]] std::pair<Engine*, Transport::SeenCall> find_wait_elsewhere(
      int rank, const Engine& here) const;

  /// Whether calls of one of them have been revoked.
  [[nodiscard]] bool is_revoked() const;
  /// Ends the calls of all of them: `Engine::revoke`.
  void revoke(std::string_view why) const;

  /// Whether `engine` is that of the context of which the others are copies.
  [[nodiscard]] bool is_first(const Engine& engine) const;

  /// This thread makes a call.
  void note_caller() noexcept {
    const auto self = std::this_thread::get_id();
    std::thread::id first = caller_.load(std::memory_order_relaxed);
    if (first == self) {
      return;
    }
    if (first != std::thread::id() ||
        !caller_.compare_exchange_strong(first, self, std::memory_order_relaxed)) {
      has_several_callers_.store(true, std::memory_order_relaxed);
    }
  }
  /// Whether all calls were made by one thread.
  [[nodiscard]] bool has_one_caller() const noexcept {
    return !has_several_callers_.load(std::memory_order_relaxed);
  }

 private:
  /// For calls without this mutex: an engine asks the family under its own.
  [[nodiscard]] std::vector<std::shared_ptr<Engine>> engines() const;

  std::atomic<std::thread::id> caller_{};
  std::atomic<bool> has_several_callers_{false};
  mutable std::mutex mutex_;
  std::vector<Engine*> engines_;
};

}  // namespace bluefog
