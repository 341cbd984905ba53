// What an exchange does, and what it waits for, as spans of a timeline.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bluefog_cpp/engine/exchange.hpp"

namespace bluefog {

// The same steps as without a timeline. A look that finds nothing to do opens the span of a wait,
// so that the trace of a process that dies tells whom it waited for.
bool Exchange::step_traced(const StepRights& rights, PeerWord& word) {
  bool moved = false;
  if (may_publish(rights)) {
    const auto from = Timeline::Clock::now();
    moved = publish(rights);
    if (moved) {
      trace("publish", from);
    }
  }
  if (may_consume(rights)) {
    const std::size_t used_before = used_;
    const auto from = Timeline::Clock::now();
    moved |= consume(word);
    if (used_ != used_before) {
      trace("combine", from);
    }
  }
  if (finished()) {
    end_pause(Timeline::Clock::now());
  } else if (!moved) {
    trace_pause(rights);
  }
  return moved;
}

void Exchange::trace(std::string_view name, Timeline::Clock::time_point from) {
  end_pause(from);
  row_->add(name, from, Timeline::Clock::now());
}

void Exchange::end_pause(Timeline::Clock::time_point when) {
  if (pause_.reason != Pause::Reason::None) {
    pause_ = {};
    row_->end(when);
  }
}

void Exchange::trace_pause(const StepRights& rights) {
  const Pause pause = pause_now(rights);
  if (pause == pause_) {
    return;
  }
  end_pause(Timeline::Clock::now());
  pause_ = pause;
  switch (pause.reason) {
    case Pause::Reason::None:
      return;
    case Pause::Reason::Source:
      return row_->begin(fmt::format("wait for rank {}", pause.rank));
    case Pause::Reason::Reader:
      return row_->begin(fmt::format("wait for room at rank {}", pause.rank));
    case Pause::Reason::EarlierCall:
      return row_->begin("wait for earlier calls");
    case Pause::Reason::NobodyWaits:
      return row_->begin("rest until waited for");
  }
}

Exchange::Pause Exchange::pause_now(const StepRights& rights) const {
  if (may_consume(rights)) {
    const auto source =
        std::ranges::find_if(sources_, [this](const Source& s) { return is_awaited(s); });
    if (source != sources_.end()) {
      return {.reason = Pause::Reason::Source, .rank = source->rank};
    }
  }
  if (published_) {
    return {.reason = Pause::Reason::NobodyWaits};
  }
  if (!rights.may_publish) {
    return {.reason = Pause::Reason::EarlierCall};
  }
  for (const auto& [departure, transport] : sendings_) {
    if (!departure.complete()) {
      const std::size_t reader = std::min(departure.reader_cursor, departure.readers.size() - 1);
      return {.reason = Pause::Reason::Reader, .rank = departure.readers[reader].rank};
    }
  }
  return {};
}

}  // namespace bluefog
