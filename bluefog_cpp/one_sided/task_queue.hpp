#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// Runs tasks in the order of their submission, on a thread of its own that begins with the first
/// one. Thread-safe.
class TaskQueue {
 public:
  /// @param owner for messages: "rank 0, windows".
  /// @param check_interrupt called about every 50 ms by threads that wait; its exception ends the
  ///   wait, not the task.
  TaskQueue(std::string owner, std::function<void()> check_interrupt);
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;
  ~TaskQueue();

  /// An exception from `task` comes out of `Work::wait`. @throws StateError after `close`.
  Work submit(std::function<void()> task);

  /// Runs `call` here if nothing is under way. Else waits for the task that `make_task` returns,
  /// behind what is; the task holds all that it uses, since the wait may end before it.
  template <typename Call, typename MakeTask>
  void run(Call&& call, MakeTask&& make_task) {
    if (is_idle()) {
      std::forward<Call>(call)();
    } else {
      submit(std::forward<MakeTask>(make_task)()).wait();
    }
  }

  /// Returns when everything submitted so far has run, or the interrupt check throws.
  void drain();

  /// Makes tasks that have not begun fail with StateError. Idempotent.
  void close() noexcept;

 private:
  class Task;
  struct State;

  [[nodiscard]] bool is_idle() const;
  void work();

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace bluefog
