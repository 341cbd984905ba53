#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "bluefog_cpp/engine/peers.hpp"

namespace bluefog {

/// The step, of those that optimizers count, at whose end the ranks form their group anew.
class Appointment {
 public:
  /// @param peers outlive this object.
  explicit Appointment(Peers& peers) noexcept : peers_(peers) {}

  /// Has all ranks know it. Under the engine's mutex (`Engine::run_exclusively`).
  void make(std::uint64_t step) {
    peers_.report({.call = step}, "", ControlMessage::Kind::Appointment);
    hear(step);
  }
  /// Notes what a peer reports. The first one counts.
  void hear(std::uint64_t step) noexcept {
    std::uint64_t none = kNone;
    step_.compare_exchange_strong(none, step, std::memory_order_relaxed);
  }
  /// Nothing where none is made. Any thread.
  [[nodiscard]] std::optional<std::uint64_t> step() const noexcept {
    const std::uint64_t step = step_.load(std::memory_order_relaxed);
    return step == kNone ? std::nullopt : std::optional(step);
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  Peers& peers_;
  std::atomic<std::uint64_t> step_{kNone};
};

}  // namespace bluefog
