#include "examples/train_images/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace bluefog::examples {
namespace {

constexpr std::int64_t kBarWidth = 10;
constexpr std::size_t kLongestLine = 79;  // one more would wrap, and could not be rewritten
constexpr std::chrono::milliseconds kLivePeriod{200};
constexpr std::chrono::seconds kLinePeriod{10};

std::int64_t total_steps(const ProgressState& state) {
  return std::max<std::int64_t>(state.epochs * state.steps_per_epoch, 1);
}

std::int64_t done_steps(const ProgressState& state) {
  return state.epoch * state.steps_per_epoch + state.step;
}

std::string target_of(pid_t process, int descriptor) {
  std::error_code error;
  return std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", process, descriptor), error)
      .string();
}

pid_t parent_of(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("PPid:")) {
      return static_cast<pid_t>(std::stol(line.substr(5)));
    }
  }
  return 0;
}

/// The output of the nearest ancestor that has one of its own: the launcher, not a wrapper that
/// shares this process's.
std::string output_above(int descriptor) {
  const std::string own = target_of(getpid(), descriptor);
  pid_t process = getppid();
  while (process > 1 && target_of(process, descriptor) == own) {
    process = parent_of(process);
  }
  return target_of(process, descriptor);
}

}  // namespace

std::chrono::duration<double> time_left(const ProgressState& state) {
  const std::int64_t done_here = done_steps(state) - state.steps_before;
  if (done_here <= 0) {
    return std::chrono::duration<double>{0};
  }
  const auto left = static_cast<double>(total_steps(state) - done_steps(state));
  return state.elapsed * (std::max(left, 0.0) / static_cast<double>(done_here));
}

std::string format_clock(std::chrono::duration<double> time) {
  const auto seconds = static_cast<std::int64_t>(std::llround(time.count()));
  if (seconds >= 3600) {
    return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  }
  return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
}

std::string format_progress(const ProgressState& state, bool has_bar) {
  const std::int64_t done = done_steps(state);
  std::string bar;
  if (has_bar) {
    const auto filled = static_cast<std::size_t>(kBarWidth * done / total_steps(state));
    bar = fmt::format(" [{:.<{}}]", std::string(filled, '#'), kBarWidth);
  }
  const std::string line = fmt::format(
      "epoch {}/{}{} {:3}% step {}/{} loss {:.3f} {:.0f} img/s ETA {}", state.epoch + 1,
      state.epochs, bar, 100 * done / total_steps(state), state.step, state.steps_per_epoch,
      state.loss, state.images_per_second, format_clock(time_left(state)));
  return line.substr(0, kLongestLine);
}

bool ends_at_terminal(std::FILE* stream) {
  if (isatty(fileno(stream)) == 0) {
    return false;
  }
  if (std::getenv("PMIX_RANK") == nullptr) {
    return true;
  }
  const std::string above = output_above(fileno(stream));
  return above.starts_with("/dev/pts/") || above.starts_with("/dev/tty");
}

Progress::Progress(ProgressKind kind) : kind_(kind) {
  if (kind_ == ProgressKind::Auto) {
    kind_ = ends_at_terminal(stdout) ? ProgressKind::Live : ProgressKind::Lines;
  }
}

void Progress::update(const ProgressState& state) {
  if (kind_ == ProgressKind::Off) {
    return;
  }
  const bool is_live = kind_ == ProgressKind::Live;
  const auto now = Clock::now();
  const auto period = is_live ? Clock::duration(kLivePeriod) : Clock::duration(kLinePeriod);
  const bool is_epoch_end = state.step == state.steps_per_epoch;
  if (!is_epoch_end && last_ != Clock::time_point{} && now - last_ < period) {
    return;
  }
  last_ = now;
  if (is_live) {
    fmt::print("\r{}\x1b[K", format_progress(state, true));
    line_is_open_ = true;
  } else {
    fmt::print("{}\n", format_progress(state, false));
  }
  std::fflush(stdout);
}

void Progress::print(const std::string& text) {
  clear();
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Progress::clear() {
  if (line_is_open_) {
    fmt::print("\r\x1b[K");
    line_is_open_ = false;
  }
}

}  // namespace bluefog::examples
