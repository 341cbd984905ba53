#pragma once

#include <string>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog {

/// A call to a window of a rank that has freed or destroyed its part: that rank has finished, and
/// has not failed.
class WindowGone : public StateError {
 public:
  WindowGone(int rank, const std::string& message) : StateError(message), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// A call to a window of a rank that has closed its context, whatever became of the window before.
class PeerHasLeft : public PeerFailure {
 public:
  using PeerFailure::PeerFailure;
};

}  // namespace bluefog
