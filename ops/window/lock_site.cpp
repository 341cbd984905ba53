#include "ops/window/lock_site.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string_view>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::ops {
namespace {

constexpr std::chrono::milliseconds kLockPeriod{50};
/// Names the call of a rank whose memory is not shared.
constexpr std::string_view kServed = "a call of a rank on another host";

}  // namespace

void LockSite::take(shm::RobustLock& lock) const {
  using Outcome = shm::RobustLock::Outcome;
  const int own_rank = window.rank();
  const std::string_view name = call != nullptr ? call->name() : kServed;
  Outcome outcome = lock.try_take(own_rank);
  if (outcome == Outcome::Busy) {
    const Deadline deadline = window.hub().deadline();
    std::optional<WindowWait> wait;
    if (call != nullptr) {
      wait.emplace(*call, what, rank);
    }
    // A process that was stopped meanwhile looks once more: nobody kept the lock from it.
    for (bool is_last = false; (outcome = lock.take(own_rank, kLockPeriod)) == Outcome::Busy;
         is_last = deadline.expired()) {
      if (is_last) {
        window.context().core().engine().note_abandonment();  // the server's thread has no call
        throw TimeoutError(fmt::format(
            "{}: the {} of rank {} was not free for {:.1f} s (BLUEFOG_TIMEOUT); rank {} holds it",
            window.where(name), what == WindowWait::For::Mutex ? "mutex" : "buffer", rank,
            std::chrono::duration<double>(window.context().settings().timeout).count(),
            lock.holder()));
      }
      if (wait) {  // the server's thread is not the user's
        wait->goes_on(lock.holder());
        window.hub().check_interrupt();
      }
    }
    if (wait) {
      wait->is_over();
    }
  }
  if (outcome == Outcome::Inherited) {
    window.context().log().warning(
        fmt::format("{}: the rank that held a lock died with it; what it was writing may be half "
                    "written",
                    window.where(name)));
  }
}

}  // namespace bluefog::ops
