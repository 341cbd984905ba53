#include "tools/bftopo/busy_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace bluefog::bftopo {

BusyLine::BusyLine(std::FILE* stream)
    : stream_(stream && isatty(fileno(stream)) != 0 ? stream : nullptr) {
  if (stream_) {
    thread_ = std::jthread([this](const std::stop_token& stop) { show(stop); });
  }
}

void BusyLine::say(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

void BusyLine::show(const std::stop_token& stop) {
  using std::chrono::seconds;
  std::unique_lock lock(mutex_);
  for (seconds shown{1};; ++shown) {
    over_.wait_until(lock, stop, start_ + shown, [] { return false; });
    if (stop.stop_requested()) {
      return;
    }
    is_open_ = true;
    fmt::print(stream_, "\r{}, {} s\x1b[K", what_, shown.count());
    std::fflush(stream_);
  }
}

void BusyLine::end() {
  if (!thread_.joinable()) {
    return;
  }
  thread_.request_stop();
  thread_.join();
  if (!is_open_) {
    return;
  }
  std::fputs("\r\x1b[K", stream_);
  std::fflush(stream_);
}

}  // namespace bluefog::bftopo
