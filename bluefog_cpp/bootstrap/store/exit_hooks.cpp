#include "bluefog_cpp/bootstrap/store/exit_hooks.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "bluefog_cpp/bootstrap/leave_hooks.hpp"

namespace bluefog {

namespace {

struct AtExit {
  LeaveHooks hooks;
  pid_t owner = ::getpid();
};

void on_exit_of_process(int status, void* argument) {
  auto& at_exit = *static_cast<AtExit*>(argument);
  if (::getpid() == at_exit.owner) {
    leave_exit_note(status);  // before others can end because of it
    at_exit.hooks.run();
  }
}

}  // namespace

std::shared_ptr<void> at_exit(std::function<void()> leave) {
  // Never destroyed: other static objects may go after it has run.
  static auto* const instance = [] {
    auto* const made = new AtExit;
    ::on_exit(on_exit_of_process, made);
    return made;
  }();
  return instance->hooks.add(std::move(leave));
}

}  // namespace bluefog
