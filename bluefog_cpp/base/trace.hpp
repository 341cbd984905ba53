#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace bluefog {

/// Writes what a rank does, and when, as a Chrome trace (Perfetto and
/// chrome://tracing open it).
///
/// The file is `<prefix><rank>.json`. Events reach it within 0.1 s, so that it
/// tells what a process was doing when it died: chrome's array format may lack
/// its closing bracket. Closed normally, the file is valid JSON. Times are
/// microseconds of the system clock, which aligns the files of one machine.
///
/// Each lane (a tensor, a bucket, an operation's name) is a row of its own, in
/// which begin and end nest. Thread-safe. Cost: one formatted line under a lock
/// per event; a thread writes them, and sleeps while there are none.
class Timeline {
 public:
  /// @throws InvalidArgument if the file cannot be written, with its name and the reason.
  Timeline(const std::string& prefix, int rank);
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
  class Writer;
  std::unique_ptr<Writer> writer_;
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
