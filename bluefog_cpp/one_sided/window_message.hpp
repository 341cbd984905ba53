#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog {

/// A request of one rank to another rank's window, between hosts, or an answer. Travels as bytes,
/// ahead of its payload.
struct WindowMessage {
  /// Append only.
  enum class Kind : std::uint8_t {
    Put = 0,
    Accumulate = 1,
    Get = 2,
    /// Asks for the window's mutex; answered when it has been taken.
    Lock = 3,
    Unlock = 4,
    Done = 5,
    /// The request failed; the text says why.
    Failed = 6,
    /// The window is there no more.
    Gone = 7,
    /// The mutex that was asked for is not free; `holder` holds it. The answer comes later.
    Held = 8,
    /// Asks whether the window is there.
    Presence = 9,
    /// Sets the stamp of what the sender has put last. Nobody answers.
    Stamp = 10,
  };

  Kind kind = Kind::Done;
  Dtype dtype = Dtype::UInt8;
  /// In `Held`: the rank that holds the mutex.
  std::int32_t holder = -1;
  /// The window's number, the same on all ranks.
  std::uint32_t window = 0;
  /// The asker's number of this request, which answers carry back; an `Unlock` has its `Lock`'s.
  std::uint64_t ticket = 0;
  /// Bytes of payload that follow.
  std::uint64_t bytes = 0;
  /// Weight that the payload is to be multiplied by.
  double weight = 1.0;
  /// Associated weight (push-sum) that goes along, weighted already.
  double mass = 0.0;
  /// The sender's number of what it puts or accumulates, or has put.
  std::int64_t stamp = 0;
  /// In `Failed` the reason; in `Put` and `Accumulate` the payload's code, empty where it has none.
  std::array<char, 448> text{};
};

/// Serves one window's requests of ranks on other hosts. Called by the server's thread.
class WindowTarget {
 public:
  WindowTarget() = default;
  WindowTarget(const WindowTarget&) = delete;
  WindowTarget& operator=(const WindowTarget&) = delete;
  virtual ~WindowTarget() = default;

  /// Puts or accumulates. @throws Error, which the asker is told.
  virtual void store(int source, const WindowMessage& request,
                     std::span<const std::byte> payload) = 0;
  /// This rank's own value, which stays where it is while the target lives, or lies in `room`,
  /// which is the caller's. Sets `mass`.
  virtual std::span<const std::byte> load(int source, double& mass,
                                          std::vector<std::byte>& room) = 0;
  /// Sets the stamp of what `source` has put last.
  virtual void set_stamp(int source, std::int64_t stamp) = 0;
  /// Takes the mutex for `source`, if it is free.
  virtual bool try_lock(int source) = 0;
  /// The rank that holds the mutex, or -1.
  [[nodiscard]] virtual int holder() const = 0;
  /// Releases the mutex. Ignored unless `source` holds it.
  virtual void unlock(int source) = 0;
};

}  // namespace bluefog
