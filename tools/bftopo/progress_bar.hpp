#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace bluefog::bftopo {

/// A line at a terminal that is rewritten a few times a second and cleared at the end; silent
/// elsewhere, and for work that takes no longer than that. One thread.
class ProgressBar {
 public:
  /// @param stream may be null. @param total steps of the work.
  ProgressBar(std::FILE* stream, std::int64_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* stream_;
  std::int64_t total_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
  bool is_open_ = false;
};

}  // namespace bluefog::bftopo
