#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "bluefog_cpp/buffer_view.hpp"

namespace bluefog {

class Engine;
class Operation;

/// The stream of a device that somebody waits on, where it is none of those of the call's buffers.
/// A null pointer inside is the device's default stream.
using WaitingStream = std::optional<void*>;

/// Something under way outside an engine that a `Work` refers to.
class Pending {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  virtual ~Pending() = default;

  /// Waits like `Work::wait`, on that stream too.
  virtual void wait(WaitingStream stream) = 0;
  /// Waits like `Work::synchronize`.
  virtual void synchronize() { wait({}); }
  /// The answer of `Work::device`.
  [[nodiscard]] virtual Device device() const noexcept { return {}; }
  /// The answer of `Work::done`.
  [[nodiscard]] virtual bool done() const noexcept = 0;
};

/// A call in flight. Copies refer to the same call.
///
/// Dropping it does not cancel the call, which goes on. The call keeps the `owner` of a buffer, if
/// one was given, until it is done, whether somebody holds this or not; with buffers on a device,
/// this keeps it too.
class [[nodiscard]] Work {
 public:
  /// A call that has completed.
  Work() = default;
  /// For the runtime: the call `operation`, which has been given to `engine`.
  Work(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> operation);
  /// A call that goes by something outside an engine, to which all members are passed on.
  explicit Work(std::shared_ptr<Pending> pending);

  /// Blocks until the call is complete and its result is in memory.
  ///
  /// The calling thread drives the transfers meanwhile. May be called again and from any thread.
  /// With buffers on a device it blocks until the call is launched there: later work on their
  /// streams waits for the result, and the host does not.
  /// @throws MismatchError, PeerFailure, TimeoutError, TransportError: the call's failure.
  /// @throws StateError on a stream that captures a CUDA graph without the call, or that captures
  ///   no more where the call is part of a graph.
  void wait() const;

  /// Waits like `wait`, on another stream of the buffers' device than those that order them: later
  /// work on it waits for the result too. A result that is held back until somebody waits comes
  /// after the work that is on it by now (of several waits, the first one's). Null is the default
  /// stream. Nothing is done with the stream where the buffers are on the CPU.
  void wait(void* stream) const;

  /// Waits like `wait`, with a deadline of its own in the place of BLUEFOG_TIMEOUT; zero: never. Of
  /// a call on a device it is as `wait`.
  void wait_within(std::chrono::milliseconds timeout) const;

  /// The pace of somebody who waits beside the thread that made the call, and the time that it has
  /// waited in vain.
  class Attendance;
  /// @param timeout a deadline of its own; zero: BLUEFOG_TIMEOUT.
  [[nodiscard]] std::shared_ptr<Attendance> attendance(std::chrono::milliseconds timeout) const;
  /// Waits at rest until the call is done, at most about until `end`; never throws what `wait`
  /// does. A deadline counts as in `wait`. @return whether it is done.
  bool attend(Attendance& attendance, std::chrono::steady_clock::time_point end) const;

  /// Waits like `wait`, and with buffers on a device blocks until the device is done with them.
  /// @throws also NcclError and CudaError, for failures on the device; StateError for a call that
  ///   was captured in a CUDA graph, which does not run before the graph is launched.
  void synchronize() const;

  /// True if `wait` would return (or throw) at once. Never blocks, never throws; does not start
  /// work that is left to `wait`.
  [[nodiscard]] bool done() const noexcept;

  /// The device of the buffers; the CPU for a call that had completed when it was made.
  [[nodiscard]] Device device() const noexcept;

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Operation> operation_;
  std::shared_ptr<Pending> pending_;
};

}  // namespace bluefog
