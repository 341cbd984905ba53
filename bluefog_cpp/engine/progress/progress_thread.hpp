#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace bluefog {

/// The thread that drives calls while nobody waits for them; made when it is first needed.
///
/// Used under the engine's mutex, but for `join`.
class ProgressThread {
 public:
  /// @param body runs on the thread, and returns soon after `stop`.
  explicit ProgressThread(std::function<void()> body) : body_(std::move(body)) {}
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// There is something to drive. Nothing after `stop`, and where the system has no thread left:
  /// calls then go on while somebody waits, and the next `wake` tries again.
  void wake() noexcept {
    if (!thread_.joinable() && !stopped_) {
      try {
        thread_ = std::thread(body_);
      } catch (const std::exception&) {  // destructors of waits get here
      }
    }
    condition_.notify_one();
  }

  void stop() noexcept {
    stopped_ = true;
    condition_.notify_all();
  }
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_; }

  /// The body calls it to rest, without `lock`, until `wake` or `stop`.
  void rest(std::unique_lock<std::mutex>& lock) { condition_.wait(lock); }
  /// The same, for `time` at most.
  template <typename Time>
  void rest(std::unique_lock<std::mutex>& lock, Time time) {
    condition_.wait_for(lock, time);
  }

  /// Waits for the end of the thread, unless it is the one that asks. Without the mutex.
  void join() noexcept {
    if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) {
      thread_.join();
    }
  }

 private:
  std::function<void()> body_;
  std::thread thread_;
  std::condition_variable condition_;
  bool stopped_ = false;
};

}  // namespace bluefog
