#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "bluefog_cpp/base/trace/trace.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/engine/flight_recorder.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog::ops {

/// One call of a window while it lasts: its row in the timeline, and its entry
/// in the flight record. Used by one thread at a time; the context outlives it.
class WindowCall {
 public:
  /// @param name "win_put", …: a text that stays.
  WindowCall(Context& context, std::string_view name, const Envelope& window);
  WindowCall(WindowCall&& other) noexcept
      : context_(other.context_),
        name_(other.name_),
        window_(other.window_),
        row_(std::move(other.row_)),
        ticket_(std::exchange(other.ticket_, 0)) {}
  WindowCall& operator=(WindowCall&&) = delete;
  ~WindowCall() { end(FlightRecorder::State::Complete); }

  [[nodiscard]] std::string_view name() const noexcept { return name_; }

  /// Notes that the call has the mutexes that it wanted, and keeps them.
  void hold_mutexes(std::span<const int> ranks);
  /// Ends the call with an error, which the flight record is written with. One of a wait that took
  /// too long counts for the end of the context.
  void fail(const std::exception& error);

  /// A part of the call in the timeline, as long as this lasts.
  class Part {
   public:
    Part(WindowCall& call, int rank);
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() { call_.row_.end(); }

   private:
    WindowCall& call_;
  };

 private:
  friend class WindowWait;
  /// The number in the launch of a rank of the window.
  [[nodiscard]] int in_launch(int rank) const;
  void end(FlightRecorder::State state);

  Context& context_;
  std::string_view name_;
  std::string_view window_;
  TraceRow row_;
  FlightRecorder::Ticket ticket_ = 0;
};

/// A wait inside a call of a window, for as long as this lasts.
class WindowWait {
 public:
  /// The kinds of things that a call waits for at a rank.
  enum class For : std::uint8_t {
    Mutex,
    Buffer,
    Answer,
    Value,   ///< that the rank puts into a buffer of this one
    Copy,    ///< of this rank's tensor, between its device and the host
    Device,  ///< this rank's
  };

  WindowWait(WindowCall& call, For what, int rank);
  WindowWait(const WindowWait&) = delete;
  WindowWait& operator=(const WindowWait&) = delete;
  ~WindowWait() { call_.row_.end(); }

  /// Called every now and then while the wait lasts: warns once, after `BLUEFOG_STALL_WARNING`.
  /// @param holder the rank that holds the lock, or -1.
  void goes_on(int holder);
  /// Notes that the wait has come to its end: the call got what it waited for.
  void is_over();

 private:
  /// @param in_launch whether ranks go by their numbers in the launch.
  [[nodiscard]] std::string text(bool in_launch = false) const;
  void note() const;

  WindowCall& call_;
  For what_;
  int rank_;
  int holder_ = -1;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool has_warned_ = false;
};

}  // namespace bluefog::ops
