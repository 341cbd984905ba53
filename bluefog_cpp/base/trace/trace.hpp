#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "bluefog_cpp/log.hpp"

namespace bluefog {

/// Writes what a rank does, and when, as a Chrome trace (Perfetto and
/// chrome://tracing open it).
///
/// The file is `<prefix><rank>.json`, valid JSON at any time (`TraceFile`). An activity is in it
/// when the outermost one of its row ends, and one that still runs within 0.1 s, so that the file
/// tells what a process was doing when it died. A later timeline of the same process and rank goes
/// on with the file; of two at once the second writes nothing, which is logged, as is a full disk.
/// Times are microseconds of the system clock, which aligns the files of one machine.
///
/// Each lane (a tensor, a bucket, an operation's name) is a row of its own, in
/// which begin and end nest; activities that share a lane's name and overlap get
/// a row each (`TraceRow`). Thread-safe. Cost: one formatted line under a lock
/// per event, and a system call when a row's outermost activity ends; a thread writes what still
/// runs, and sleeps while there is nothing.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  /// @throws InvalidArgument if the file cannot be written, with its name and the reason.
  Timeline(const std::string& prefix, int rank, Logger log = Logger());
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  /// Closes the file.
  ~Timeline();

  /// Starts activity `name` ("NEIGHBOR_ALLREDUCE", "COMMUNICATE", …) on `lane`.
  void begin(std::string_view lane, std::string_view name);

  /// Ends what was started last on `lane`; nothing if nothing runs there.
  void end(std::string_view lane);

  /// A moment on `lane`.
  void mark(std::string_view lane, std::string_view name);

 private:
  friend class TraceRow;
  class Writer;
  std::unique_ptr<Writer> writer_;
};

/// The timeline's word for a call: "NEIGHBOR_ALLREDUCE" for "neighbor_allreduce".
[[nodiscard]] std::string activity_name(std::string_view call);

/// A row of a timeline that one activity has to itself, with all that happens inside it, so that
/// spans nest although others of the same name run at the same time.
///
/// Used by one thread at a time; the timeline outlives it. Does not throw: where memory runs out,
/// the trace loses spans.
class TraceRow {
 public:
  /// Writes nothing.
  TraceRow() = default;
  /// The first row called `lane` that is free; none where `timeline` is null.
  TraceRow(Timeline* timeline, std::string_view lane) noexcept {
    if (timeline != nullptr) {
      take(*timeline, lane);
    }
  }
  TraceRow(TraceRow&& other) noexcept
      : timeline_(std::exchange(other.timeline_, nullptr)), number_(other.number_) {}
  TraceRow& operator=(TraceRow&& other) noexcept {
    close();
    timeline_ = std::exchange(other.timeline_, nullptr);
    number_ = other.number_;
    return *this;
  }
  ~TraceRow() { close(); }

  [[nodiscard]] bool is_open() const noexcept { return timeline_ != nullptr; }

  /// Starts a span inside the one that was started last.
  void begin(std::string_view name) noexcept;
  /// Ends the span that was started last.
  void end() noexcept {
    if (timeline_ != nullptr) {
      end(Timeline::Clock::now());
    }
  }
  void end(Timeline::Clock::time_point when) noexcept;
  /// A span that is over, inside the one that was started last.
  void add(std::string_view name, Timeline::Clock::time_point from,
           Timeline::Clock::time_point to) noexcept;

  /// Ends what still runs, and gives the row back.
  void close() noexcept {
    if (timeline_ != nullptr) {
      give_back();
    }
  }

 private:
  void take(Timeline& timeline, std::string_view lane) noexcept;
  void give_back() noexcept;

  Timeline* timeline_ = nullptr;
  int number_ = 0;
};

/// An activity that lasts as long as this object. Costs a null check when
/// `timeline` is null. Does not throw.
class Span {
 public:
  Span(Timeline* timeline, std::string_view lane, std::string_view name) noexcept {
    if (timeline != nullptr) {
      open(timeline, lane, name);
    }
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (timeline_ != nullptr) {
      close();
    }
  }

 private:
  void open(Timeline* timeline, std::string_view lane, std::string_view name) noexcept;
  void close() noexcept;

  Timeline* timeline_ = nullptr;
  std::string lane_;
};

}  // namespace bluefog
