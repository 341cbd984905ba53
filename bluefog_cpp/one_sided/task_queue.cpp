#include "bluefog_cpp/one_sided/task_queue.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include "bluefog_cpp/base/prepare_to_throw.hpp"
#include "bluefog_cpp/base/where_memory_allows.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

struct TaskQueue::State {
  /// Waits until `is_over`; the caller holds the mutex. @throws what the interrupt check throws.
  template <typename IsOver>
  void wait(std::unique_lock<std::mutex>& lock, IsOver is_over) {
    constexpr std::chrono::milliseconds kCheckPeriod{50};
    while (!has_ended.wait_for(lock, kCheckPeriod, is_over)) {
      if (check_interrupt) {
        lock.unlock();
        check_interrupt();
        lock.lock();
      }
    }
  }

  /// The caller holds the mutex.
  void check_open() const {
    if (is_closed) {
      throw StateError(owner + ": the context is closed");
    }
  }

  /// The error of a task that does not run any more.
  [[nodiscard]] std::exception_ptr error_of_close() const noexcept {
    return error_from([this] {
      return std::make_exception_ptr(
          StateError(owner + ": the context was closed before this began"));
    });
  }

  std::string owner;
  std::function<void()> check_interrupt;
  std::mutex mutex;
  /// A task has come, or the queue was closed.
  std::condition_variable has_work;
  /// A task has ended.
  std::condition_variable has_ended;
  std::deque<std::shared_ptr<Task>> waiting;
  bool is_busy = false;
  bool is_closed = false;
};

class TaskQueue::Task final : public Pending {
 public:
  Task(std::shared_ptr<State> state, std::function<void()> function)
      : state_(std::move(state)), function_(std::move(function)) {}

  void wait(WaitingStream /*stream*/) override {
    std::unique_lock lock(state_->mutex);
    state_->wait(lock, [this] { return is_done_.load(); });
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

  [[nodiscard]] bool done() const noexcept override { return is_done_.load(); }

  /// Runs the task; the caller does not hold the mutex. @return the error for `end`, or null.
  [[nodiscard]] std::exception_ptr run() {
    std::exception_ptr error;
    try {
      function_();
    } catch (...) {
      error = std::current_exception();
    }
    function_ = nullptr;
    return error;
  }

  /// Lets go of what the task would have used; it will not run. The caller does not hold the mutex.
  void drop() noexcept { function_ = nullptr; }

  /// Ends the task; the caller holds the mutex.
  void end(std::exception_ptr error) {
    error_ = std::move(error);
    is_done_.store(true);
    state_->has_ended.notify_all();
  }

 private:
  std::shared_ptr<State> state_;
  std::function<void()> function_;
  std::exception_ptr error_;
  std::atomic<bool> is_done_{false};
};

TaskQueue::TaskQueue(std::string owner, std::function<void()> check_interrupt)
    : state_(std::make_shared<State>()) {
  state_->owner = std::move(owner);
  state_->check_interrupt = std::move(check_interrupt);
}

TaskQueue::~TaskQueue() { close(); }

Work TaskQueue::submit(std::function<void()> task) {
  auto queued = std::make_shared<Task>(state_, std::move(task));
  const std::scoped_lock lock(state_->mutex);
  state_->check_open();
  state_->waiting.push_back(queued);
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { work(); });
  }
  state_->has_work.notify_one();
  return Work(std::move(queued));
}

bool TaskQueue::is_idle() const {
  const std::scoped_lock lock(state_->mutex);
  state_->check_open();
  return state_->waiting.empty() && !state_->is_busy;
}

void TaskQueue::drain() {
  std::unique_lock lock(state_->mutex);
  state_->wait(lock, [this] { return state_->waiting.empty() && !state_->is_busy; });
}

void TaskQueue::close() noexcept {
  std::deque<std::shared_ptr<Task>> dropped;
  {
    const std::scoped_lock lock(state_->mutex);
    state_->is_closed = true;
    dropped.swap(state_->waiting);
    for (const auto& task : dropped) {
      task->end(state_->error_of_close());
    }
    state_->has_work.notify_all();
  }
  for (const auto& task : dropped) {
    task->drop();
  }
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) {
    thread_.join();
  }
}

void TaskQueue::work() {
  prepare_to_throw();
  std::unique_lock lock(state_->mutex);
  while (true) {
    state_->has_work.wait(lock, [this] { return state_->is_closed || !state_->waiting.empty(); });
    if (state_->waiting.empty()) {
      return;
    }
    std::shared_ptr<Task> task = std::move(state_->waiting.front());
    state_->waiting.pop_front();
    state_->is_busy = true;
    lock.unlock();
    std::exception_ptr error = task->run();
    lock.lock();
    task->end(std::move(error));
    task.reset();  // before a waiter looks at its error, which is then the waiter's alone
    state_->is_busy = false;
    state_->has_ended.notify_all();
  }
}

}  // namespace bluefog
