#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace bluefog {

/// Functions to be called once, in the order of registration, before something ends. Thread-safe.
class LeaveHooks {
 public:
  /// @return what the caller keeps as long as `leave` may be called.
  [[nodiscard]] std::shared_ptr<void> add(std::function<void()> leave) {
    auto hook = std::make_shared<std::function<void()>>(std::move(leave));
    const std::scoped_lock lock(mutex_);
    std::erase_if(hooks_, [](const auto& weak) { return weak.expired(); });
    hooks_.push_back(hook);
    return hook;
  }

  void run() {
    std::unique_lock lock(mutex_);
    const auto hooks = std::exchange(hooks_, {});
    lock.unlock();
    for (const auto& weak : hooks) {
      if (const auto hook = weak.lock()) {
        (*hook)();
      }
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<std::function<void()>>> hooks_;
};

}  // namespace bluefog
