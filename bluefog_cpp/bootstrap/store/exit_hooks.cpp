#include "bluefog_cpp/bootstrap/store/exit_hooks.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/exit_note.hpp"

namespace bluefog {

namespace {

class ExitHooks {
 public:
  // Never destroyed: other static objects may go after it has run.
  static ExitHooks& instance() {
    static auto* const hooks = new ExitHooks;
    return *hooks;
  }

  std::shared_ptr<void> add(std::function<void()> leave) {
    auto hook = std::make_shared<std::function<void()>>(std::move(leave));
    const std::scoped_lock lock(mutex_);
    std::erase_if(hooks_, [](const auto& weak) { return weak.expired(); });
    hooks_.push_back(hook);
    return hook;
  }

 private:
  ExitHooks() : owner_(::getpid()) {
    ::on_exit([](int status, void* self) { static_cast<ExitHooks*>(self)->run(status); }, this);
  }

  void run(int status) {
    if (::getpid() != owner_) {
      return;
    }
    leave_exit_note(status);  // before others can end because of it
    std::unique_lock lock(mutex_);
    const auto hooks = std::exchange(hooks_, {});
    lock.unlock();
    for (const auto& weak : hooks) {
      if (const auto hook = weak.lock()) {
        (*hook)();
      }
    }
  }

  pid_t owner_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<std::function<void()>>> hooks_;
};

}  // namespace

std::shared_ptr<void> at_exit(std::function<void()> leave) {
  return ExitHooks::instance().add(std::move(leave));
}

}  // namespace bluefog
