#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "bluefog_cpp/engine/peers.hpp"

namespace bluefog {

/// The step, of those that optimizers count, at whose end the ranks form their group anew. Rank 0
/// alone makes it, so that there is one.
class Appointment {
 public:
  /// @param peers outlive this object.
  explicit Appointment(Peers& peers) noexcept : peers_(peers) {}

  /// Has all ranks know it. Under the engine's mutex (`Engine::run_exclusively`).
  /// @param is_departure whether one of them leaves there.
  void make(std::uint64_t step, bool is_departure) {
    peers_.report({.call = step}, is_departure ? kDeparture : "",
                  ControlMessage::Kind::Appointment);
    note(step, is_departure);
  }
  /// Has rank 0 make one, as this rank wants to leave. Likewise.
  void wish() {
    if (peers_.rank() == 0) {
      is_wished_.store(true, std::memory_order_relaxed);
    } else {
      peers_.report({.call = kNone, .partner = 0}, "", ControlMessage::Kind::Appointment);
    }
  }
  /// Notes what a peer reports.
  void hear(const ControlMessage& report) noexcept {
    if (report.call == kNone) {
      is_wished_.store(true, std::memory_order_relaxed);
    } else {
      note(report.call, report.text == kDeparture);
    }
  }

  /// Nothing where none is made. Any thread, as all below.
  [[nodiscard]] std::optional<std::uint64_t> step() const noexcept {
    const std::uint64_t step = step_.load(std::memory_order_acquire);
    return step == kNone ? std::nullopt : std::optional(step);
  }
  [[nodiscard]] bool is_departure() const noexcept {
    return is_departure_.load(std::memory_order_relaxed);
  }
  /// On rank 0: whether one wants to leave.
  [[nodiscard]] bool is_wished() const noexcept {
    return is_wished_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  static constexpr const char* kDeparture = "leave";

  void note(std::uint64_t step, bool is_departure) noexcept {
    is_departure_.store(is_departure, std::memory_order_relaxed);
    step_.store(step, std::memory_order_release);
  }

  Peers& peers_;
  std::atomic<std::uint64_t> step_{kNone};
  std::atomic<bool> is_departure_{false};
  std::atomic<bool> is_wished_{false};
};

}  // namespace bluefog
