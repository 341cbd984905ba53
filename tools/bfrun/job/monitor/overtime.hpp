#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace bluefog::bfrun {

/// The time by which mpirun, or whoever else serves a job, must have ended, and why.
class Overtime {
 public:
  using Clock = std::chrono::steady_clock;

  /// One of the reasons. The earliest time counts.
  void note(Clock::time_point since, std::chrono::milliseconds grace, const std::string& reason) {
    if (first_ && first_->at <= since + grace) {
      return;
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(grace).count();
    first_ = Due{.at = since + grace, .reason = std::to_string(seconds) + " s after " + reason};
  }

  struct Due {
    Clock::time_point at;
    std::string reason;
  };
  [[nodiscard]] const std::optional<Due>& first() const { return first_; }

 private:
  std::optional<Due> first_;
};

}  // namespace bluefog::bfrun
