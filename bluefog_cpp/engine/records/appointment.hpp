#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  /// Has all ranks know that this rank's program cannot go on: `why`, a clause. From here on its calls
  /// are those of steps alone, whatever the others make. Likewise.
  void give_up(std::string_view why) {
    peers_.report({.call = kGivenUp}, why, ControlMessage::Kind::Appointment);
  }
  /// Notes what a peer reports. Under the engine's mutex.
  void hear(int source, ControlMessage report) {
    if (report.call == kNone) {
      is_wished_.store(true, std::memory_order_relaxed);
    } else if (report.call == kGivenUp) {
      given_up_.emplace_back(source, std::move(report.text));
    } else {
      note(report.call, report.text == kDeparture);
    }
  }

  /// What that rank has said of it, where it has given up; else null. Under the engine's mutex.
  [[nodiscard]] const std::string* why_given_up(int rank) const noexcept {
    for (const auto& [source, why] : given_up_) {
      if (source == rank) {
        return &why;
      }
    }
    return nullptr;
  }
  /// The first rank that has given up, or −1. Under the engine's mutex.
  [[nodiscard]] int first_given_up() const noexcept {
    return given_up_.empty() ? -1 : given_up_.front().first;
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
  static constexpr std::uint64_t kGivenUp = kNone - 1;
  static constexpr const char* kDeparture = "leave";

  void note(std::uint64_t step, bool is_departure) noexcept {
    is_departure_.store(is_departure, std::memory_order_relaxed);
    step_.store(step, std::memory_order_release);
  }

  Peers& peers_;
  std::vector<std::pair<int, std::string>> given_up_{};
  std::atomic<std::uint64_t> step_{kNone};
  std::atomic<bool> is_departure_{false};
  std::atomic<bool> is_wished_{false};
};

}  // namespace bluefog
