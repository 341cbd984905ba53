#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "examples/train_images/options.hpp"

namespace bluefog::examples {

/// The state of a run. Steps and epochs are counted from 0, as steps that are done.
struct ProgressState {
  std::int64_t epoch = 0;  ///< the current one
  std::int64_t epochs = 1;
  std::int64_t step = 0;  ///< done in this epoch
  std::int64_t steps_per_epoch = 1;
  std::int64_t steps_before = 0;  ///< done before this run began (resumed runs)
  double loss = 0.0;
  double images_per_second = 0.0;  ///< all ranks together
  std::chrono::duration<double> elapsed{0};
};

/// Time until the last step, at the mean pace of this run; zero before its first step.
[[nodiscard]] std::chrono::duration<double> time_left(const ProgressState& state);

/// `0:07`, `12:34` or `1:02:03`.
[[nodiscard]] std::string format_clock(std::chrono::duration<double> time);

/// One line of at most 79 characters, with a bar if `has_bar`:
/// `epoch 2/3 [#####.....]  50% step 234/468 loss 0.412 3512 img/s ETA 0:34`
[[nodiscard]] std::string format_progress(const ProgressState& state, bool has_bar);

/// True if `stream` ends at a terminal. Open MPI gives every rank a pseudo-terminal, whatever its
/// own output is, so that under it the launcher's output decides.
[[nodiscard]] bool ends_at_terminal(std::FILE* stream);

/// Shows progress on standard output: one line that is rewritten a few times a second at a
/// terminal, else a line every ten seconds and at the end of each epoch. One thread.
class Progress {
 public:
  explicit Progress(ProgressKind kind);

  /// Shows `state`, unless it is too soon.
  void update(const ProgressState& state);

  /// Prints `text` as a line of its own, above the live line.
  void print(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  void clear();

  ProgressKind kind_;
  Clock::time_point last_{};
  bool line_is_open_ = false;
};

}  // namespace bluefog::examples
