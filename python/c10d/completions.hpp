#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "python/c10d/group_work.hpp"

namespace bluefog::c10d_backend {

/// The threads of a group that complete futures, whose callbacks may take any time and any lock, may
/// make calls themselves, and may wait for those. One thread looks at all calls, and begins with the
/// first future; where it is in a callback for a while and calls are in flight, another one looks.
class Completions : public std::enable_shared_from_this<Completions> {
 public:
  Completions() = default;
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;
  /// Its threads keep it until `stop`, which a callback may call too.
  ~Completions() = default;

  /// @return false after `stop`: all calls of the group have ended.
  [[nodiscard]] bool add(c10::intrusive_ptr<GroupWork> work);

  /// Ends the threads when they have completed what there is: all calls are done or fail by now. The
  /// interpreter's lock must not be held.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void run();
  void look_at_first(Lock& lock);
  /// So that somebody looks at the calls that are in flight.
  void start_unless_one_is_free();
  void start_another() noexcept;

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::list<c10::intrusive_ptr<GroupWork>> works_;
  bool is_stopped_ = false;
  bool is_looking_ = false;
  std::size_t thread_count_ = 0;
  std::size_t in_callbacks_ = 0;
  /// When the first of those that are under way together began.
  Clock::time_point callback_begin_{};
  std::deque<std::thread> threads_;
};

}  // namespace bluefog::c10d_backend
