#include "bluefog_cpp/bootstrap/store/exit_hooks.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "bluefog_cpp/bootstrap/leave_hooks.hpp"

namespace bluefog {

namespace {

struct AtExit {
  // Never destroyed: other static objects may go after it has run.
  static AtExit& instance() {
    static auto* const made = new AtExit;
    return *made;
  }

  AtExit() {
    ::on_exit([](int status, void* self) { static_cast<AtExit*>(self)->exit(status); }, this);
  }

  void exit(int status) {
    if (::getpid() == owner) {
      try {
        leave_exit_note(status);  // before others can end because of it
        hooks.run();
      } catch (const std::exception&) {  // out of memory: an exit that throws would be an abort
      }
    }
  }

  void leave() {
    if (::getpid() == owner) {
      hooks.run();
    }
  }

  LeaveHooks hooks;
  pid_t owner = ::getpid();
};

}  // namespace

std::shared_ptr<void> at_exit(std::function<void()> leave) {
  return AtExit::instance().hooks.add(std::move(leave));
}

void run_exit_hooks() { AtExit::instance().leave(); }

}  // namespace bluefog
