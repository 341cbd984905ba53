#include "ops/window/window_call.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::ops {

WindowCall::WindowCall(Context& context, std::string_view name, const Envelope& window)
    : context_(context), name_(name), window_(window.name) {
  if (Timeline* const timeline = context.core().timeline()) {
    row_ = TraceRow(timeline, window.name.empty() ? "window" : window.name);
    row_.begin(activity_name(name));
  }
  if (FlightRecorder* const recorder = context.core().flight_recorder()) {
    ticket_ = recorder->begin_window_call(name, window);
  }
}

int WindowCall::in_launch(int rank) const {
  return context_.membership().ranks[static_cast<std::size_t>(rank)];
}

void WindowCall::hold_mutexes(std::span<const int> ranks) {
  row_.begin("hold");
  if (FlightRecorder* const recorder = context_.core().flight_recorder()) {
    std::vector<int> numbers;
    for (const int rank : ranks) {
      numbers.push_back(in_launch(rank));
    }
    recorder->note_window_wait(ticket_,
                               fmt::format("the mutex of rank {}", fmt::join(numbers, ", ")), {});
    recorder->set_state(ticket_, FlightRecorder::State::Held);
  }
}

void WindowCall::fail(const std::exception& error) {
  Engine& engine = context_.core().engine();
  if (dynamic_cast<const TimeoutError*>(&error) != nullptr) {
    engine.note_abandonment();
  }
  engine.record_stall(error.what());
  end(FlightRecorder::State::Failed);
}

void WindowCall::end(FlightRecorder::State state) {
  row_.close();
  if (ticket_ != 0) {
    context_.core().flight_recorder()->set_state(std::exchange(ticket_, 0), state);
  }
}

WindowCall::Part::Part(WindowCall& call, int rank) : call_(call) {
  if (call_.row_.is_open()) {
    call_.row_.begin(fmt::format("rank {}", rank));
  }
}

WindowWait::WindowWait(WindowCall& call, For what, int rank)
    : call_(call), what_(what), rank_(rank) {
  if (call_.row_.is_open()) {
    call_.row_.begin(what == For::Answer ? fmt::format("wait for rank {}", rank)
                                         : fmt::format("wait for {}", text()));
  }
  note();
}

void WindowWait::goes_on(int holder) {
  if (std::exchange(holder_, holder) != holder) {
    note();
  }
  const auto longest = call_.context_.settings().stall_warning;
  const auto waited = std::chrono::steady_clock::now() - begun_;
  if (has_warned_ || longest.count() == 0 || waited < longest) {
    return;
  }
  has_warned_ = true;
  call_.context_.log().warning(fmt::format("window '{}', {}, has been waiting for {:.1f} s: {}",
                                           call_.window_, call_.name_,
                                           std::chrono::duration<double>(waited).count(), text()));
  call_.context_.core().engine().record_stall("a call of a window has stalled");
}

void WindowWait::is_over() {
  if (FlightRecorder* const recorder = call_.context_.core().flight_recorder()) {
    recorder->note_window_wait(call_.ticket_, {}, {});
  }
}

void WindowWait::note() const {
  FlightRecorder* const recorder = call_.context_.core().flight_recorder();
  if (recorder == nullptr) {
    return;
  }
  std::vector<int> ranks;
  if (const int awaited = holder_ < 0 ? rank_ : holder_; awaited != call_.context_.rank()) {
    ranks.push_back(call_.in_launch(awaited));
  }
  recorder->note_window_wait(call_.ticket_, text(true), std::move(ranks));
}

std::string WindowWait::text(bool in_launch) const {
  const auto number = [&](int rank) { return in_launch ? call_.in_launch(rank) : rank; };
  if (what_ == For::Answer) {
    return fmt::format("an answer of rank {}", number(rank_));
  }
  if (what_ == For::Value) {
    return fmt::format("a value of rank {}", number(rank_));
  }
  if (what_ == For::Copy) {
    return "a copy between a device and the host";
  }
  if (what_ == For::Device) {
    return "this rank's device";
  }
  std::string text =
      fmt::format("the {} of rank {}", what_ == For::Mutex ? "mutex" : "buffer", number(rank_));
  if (holder_ == call_.context_.rank()) {
    text += ", which another thread of this rank holds";
  } else if (holder_ >= 0) {
    text += fmt::format(", which rank {} holds", number(holder_));
  }
  return text;
}

}  // namespace bluefog::ops
