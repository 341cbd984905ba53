#include "bluefog_cpp/engine/exchange/exchange_trace.hpp"

#include <fmt/format.h>

namespace bluefog {

void ExchangeTrace::add(std::string_view name, Clock::time_point from) {
  end_pause(from);
  row_->add(name, from, Clock::now());
}

void ExchangeTrace::end_pause(Clock::time_point when) {
  if (pause_.reason != Pause::Reason::None) {
    pause_ = {};
    row_->end(when);
  }
}

void ExchangeTrace::pause(Pause pause) {
  if (pause == pause_) {
    return;
  }
  end_pause(Clock::now());
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

}  // namespace bluefog
