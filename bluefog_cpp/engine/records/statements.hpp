#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/peers.hpp"

namespace bluefog {

/// What ranks tell rank 0 of steps that they have made, for it to compare with its own: nobody waits
/// for it.
///
/// Used under the engine's mutex.
class Statements {
 public:
  struct Statement {
    int rank = -1;           ///< whose it is
    std::uint64_t step = 0;  ///< the number of steps that it had made
    std::string text{};      ///< what it says of the last one
  };

  /// @param peers outlive this object.
  explicit Statements(Peers& peers) noexcept : peers_(peers) {}

  /// Tells rank 0, on another one.
  void make(std::uint64_t step, const std::string& text) {
    peers_.report({.call = step, .partner = 0}, text, ControlMessage::Kind::Statement);
  }
  /// Notes what a peer reports.
  void hear(int source, ControlMessage report) {
    heard_.push_back({.rank = source, .step = report.call, .text = std::move(report.text)});
  }
  /// What has come since the last call.
  [[nodiscard]] std::vector<Statement> take() { return std::exchange(heard_, {}); }

 private:
  Peers& peers_;
  std::vector<Statement> heard_{};
};

}  // namespace bluefog
