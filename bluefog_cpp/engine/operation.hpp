#pragma once

#include <atomic>
#include <boost/container/small_vector.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/engine/flight_recorder.hpp"

namespace bluefog {

class Operation;
struct Letter;

/// The engine's notes on an `Operation`: how far the call has come.
struct CallState {
  /// In this order: from Complete on the call is done.
  enum class Phase : std::uint8_t { Queued, Running, Complete, Failed };

  /// The notes on `operation`, which nobody but the engine's parts touches.
  [[nodiscard]] static CallState& of(Operation& operation) noexcept;
  [[nodiscard]] static const CallState& of(const Operation& operation) noexcept;

  [[nodiscard]] bool is_queued() const noexcept {
    return phase.load(std::memory_order_relaxed) == Phase::Queued;
  }
  [[nodiscard]] bool is_running() const noexcept {
    return phase.load(std::memory_order_relaxed) == Phase::Running;
  }
  [[nodiscard]] bool is_done() const noexcept {
    return phase.load(std::memory_order_acquire) >= Phase::Complete;
  }

  std::atomic<Phase> phase{Phase::Queued};
  /// Set before `phase` becomes Failed.
  std::exception_ptr error{};
  std::uint64_t index = 0;
  std::uint32_t step = 0;
  Exchange exchange;  // no braces: they would clear its inline storage on every call
  /// The exchange under way is the call's last.
  bool last = false;
  Consumption consumption = Consumption::AsItArrives;
  /// Every rank comes to the same verdict on this call by itself.
  bool peers_know = false;
  /// Its result takes the place of its caller's values in a buffer.
  bool is_in_place = false;
  /// It may have, by an exchange that is over; and the one under way would, with what it brings.
  bool has_changed = false;
  bool changes_now = false;
  /// Its buffers are copied from and to a device beside it.
  bool is_staged = false;
  int waiters = 0;
  /// Looks, one after the other, at which its messages could not come any more.
  int hopeless_looks = 0;
  /// Steps in which something moved.
  std::uint64_t moves = 0;
  /// Set where a flight record is kept.
  FlightRecorder::Ticket ticket = 0;
  /// The call's row in the timeline, while it lasts.
  TraceRow row{};
  /// Keep the memory of its buffers until it is done.
  boost::container::small_vector<std::shared_ptr<const void>, 2> owners;
};

/// A call as a sequence of exchanges, and what becomes of the bytes that arrive.
///
/// The operations of the `ops` layer derive from it. The engine asks for one
/// exchange after the other; all calls come under the engine's mutex, from the
/// caller's thread or the progress thread. An exception ends the call and
/// reaches the user through `Work::wait`. The object keeps alive all memory
/// that its exchanges use.
class Operation : public Receiver {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// Kind, dtype, count and name of the call.
  [[nodiscard]] virtual const Envelope& envelope() const noexcept = 0;
  /// Whether the envelope says which part of the call is under way, and so tells nothing of another
  /// rank, which may be at another part.
  [[nodiscard]] virtual bool envelope_changes() const noexcept { return false; }

  /// Fills `spec` with the next exchange. The previous one has ended by then.
  /// @return false when there is none left: the call is complete. Not asked again after a spec
  /// that was marked `last`.
  /// @throws MismatchError if what the ranks have exchanged so far does not fit together; all of
  /// them throw it then.
  virtual bool next(ExchangeSpec& spec) = 0;

  /// The one rank that makes this call too, or -1 where all ranks make it.
  [[nodiscard]] virtual int partner() const noexcept { return -1; }
  /// The address of a message that one rank alone sends to its partner, or receives; null for calls
  /// that both make. Stays where it is.
  [[nodiscard]] virtual Letter* letter() noexcept { return nullptr; }
  [[nodiscard]] const Letter* letter() const noexcept {
    return const_cast<Operation*>(this)->letter();
  }

  /// Whether a staged call has on the host the values that its first exchange needs: the engine
  /// asks until it has.
  [[nodiscard]] virtual bool may_begin() { return true; }
  /// A staged call has all of its result on the host. An exception ends the call with it.
  virtual void finish() {}
  /// The call has ended with an error.
  virtual void give_up() noexcept {}

  /// Keeps memory until the call has ended, however long somebody holds its `Work` afterwards.
  void keep_alive(std::shared_ptr<const void> owner) {
    if (owner) {
      call_.owners.push_back(std::move(owner));
    }
  }

 protected:
  /// In the constructor: the call changes the only copy of what its caller has in a buffer.
  void mark_in_place() noexcept { call_.is_in_place = true; }
  /// In the constructor: `may_begin` and `finish` are called.
  void mark_staged() noexcept { call_.is_staged = true; }
  /// The call's number, once the engine has taken it.
  [[nodiscard]] std::uint64_t call_index() const noexcept { return call_.index; }

 private:
  friend struct CallState;
  CallState call_;  // no braces, see `exchange`
};

inline CallState& CallState::of(Operation& operation) noexcept { return operation.call_; }
inline const CallState& CallState::of(const Operation& operation) noexcept {
  return operation.call_;
}

}  // namespace bluefog
