#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "python/c10d/group_work.hpp"

namespace bluefog::c10d_backend {

/// The thread of a group that completes futures, whose callbacks may take any time and any lock,
/// and may make calls themselves. It begins with the first future.
class Completions {
 public:
  Completions() = default;
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;
  /// Not from that thread itself, unless `stop` was called before.
  ~Completions() { stop(); }

  /// @return false after `stop`: all calls of the group have ended.
  [[nodiscard]] bool add(c10::intrusive_ptr<GroupWork> work);

  /// Ends the thread when it has completed what there is: all calls are done or fail by now. The
  /// interpreter's lock must not be held.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<c10::intrusive_ptr<GroupWork>> works_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace bluefog::c10d_backend
