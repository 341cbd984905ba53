#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace bluefog::shm {

/// For how long another process has given no sign of life, as far as looks at it tell.
///
/// Between two looks a quarter of the limit counts at most: whoever was stopped itself, with the
/// other, has to look some times before it judges.
class SilenceWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// A look. @param signs how many it has given; zero: it gives none, and is never silent.
  /// @return whether it has been silent for `limit`.
  [[nodiscard]] bool is_silent(std::uint64_t signs, std::chrono::nanoseconds limit,
                               Clock::time_point now = Clock::now()) noexcept {
    if (signs != signs_ || signs == 0) {
      signs_ = signs;
      silent_ = {};
    } else {
      silent_ += std::min<std::chrono::nanoseconds>(now - last_look_, limit / 4);
    }
    last_look_ = now;
    return silent_ >= limit;
  }

 private:
  std::uint64_t signs_ = 0;
  std::chrono::nanoseconds silent_{};
  Clock::time_point last_look_{};
};

}  // namespace bluefog::shm
