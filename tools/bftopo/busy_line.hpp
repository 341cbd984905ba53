#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace bluefog::bftopo {

/// A line at a terminal that says what is done and for how long, rewritten once a second from the
/// second second on and cleared at the end; silent elsewhere. One thread uses it.
class BusyLine {
 public:
  /// @param stream may be null.
  explicit BusyLine(std::FILE* stream);
  ~BusyLine() { end(); }
  BusyLine(const BusyLine&) = delete;
  BusyLine& operator=(const BusyLine&) = delete;

  /// Shows this from now on.
  void say(std::string what);
  /// Nothing is shown any more.
  void end();

 private:
  void show(const std::stop_token& stop);

  std::FILE* stream_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable_any over_;
  std::string what_;
  bool is_open_ = false;
  std::jthread thread_;
};

}  // namespace bluefog::bftopo
