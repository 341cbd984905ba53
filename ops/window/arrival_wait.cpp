#include "ops/window/arrival_wait.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "bluefog_cpp/error.hpp"
#include "ops/window/window_record.hpp"

namespace bluefog::ops {
namespace {

constexpr std::chrono::microseconds kShortestPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};
/// The time between two questions to a rank on another host, whether it has the window still.
constexpr std::chrono::milliseconds kQuestionPeriod{200};

}  // namespace

ArrivalWait::ArrivalWait(const WindowIdentity& window, const WindowParts& parts,
                         const WindowMemory& own, WindowCall& call,
                         std::optional<std::chrono::nanoseconds> longest)
    : window_(window),
      parts_(parts),
      own_(own),
      call_(call),
      longest_(longest),
      deadline_(longest ? Deadline::after(*longest) : window.hub().deadline()) {}

std::int64_t ArrivalWait::stamp_of(int source) const {
  return own_.stamp(index_of(window_.sources(), source));
}

bool ArrivalWait::wait_for(int source, std::int64_t stamp) const {
  if (stamp_of(source) >= stamp) {
    return true;
  }
  if (longest_ && longest_->count() == 0) {
    return false;
  }
  WindowWait wait(call_, WindowWait::For::Value, source);
  Deadline next_question = Deadline::after(kQuestionPeriod);
  std::chrono::microseconds pause = kShortestPause;
  // A process that was stopped meanwhile looks once more: the value may lie there.
  for (bool is_last = deadline_.expired(); stamp_of(source) < stamp;
       is_last = deadline_.expired()) {
    if (is_last) {
      if (longest_) {
        return false;
      }
      give_up(source, stamp);
    }
    check_presence(source, next_question);
    wait.goes_on(-1);
    window_.hub().check_interrupt();
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  wait.is_over();
  return true;
}

void ArrivalWait::check_presence(int source, Deadline& next_question) const {
  if (parts_.reachable(source, call_.name()) != nullptr || !next_question.expired()) {
    return;
  }
  parts_.ask(call_, WindowWait::For::Answer, source, {.kind = WindowMessage::Kind::Presence});
  next_question = next_question.again();
}

void ArrivalWait::give_up(int source, std::int64_t stamp) const {
  throw TimeoutError(fmt::format(
      "{}: expected a value of rank {} with a stamp of at least {}, found {} after {:.1f} s "
      "(BLUEFOG_TIMEOUT)",
      window_.where(call_.name()), source, stamp, stamp_of(source), deadline_.timeout().count()));
}

}  // namespace bluefog::ops
