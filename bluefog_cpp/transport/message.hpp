#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog {

/// The operation of a call. The values travel in messages: append only.
enum class OpKind : std::uint8_t {
  NeighborAllreduce = 0,
  Allreduce = 1,
  Broadcast = 2,
  Allgather = 3,
  Barrier = 4,
  TopologyCheck = 5,
  NeighborAllgather = 6,
  HierarchicalNeighborAllreduce = 7,
  PairGossip = 8,
  /// Stands in messages only: windows make no calls that others must match.
  Window = 9,
  Duplicate = 10,
  UseDevice = 11,
  /// A part of a larger call that makes something known to all ranks; its name is that call's.
  Agreement = 12,
  ReduceScatter = 13,
  Reduce = 14,
  Gather = 15,
  Scatter = 16,
  Alltoall = 17,
  /// From one rank to one other: `send` there and `receive` here. Its name is the tag.
  Message = 18,
};

/// Whether such a call has a buffer of the user's.
[[nodiscard]] constexpr bool has_buffer(OpKind kind) noexcept {
  return kind != OpKind::Barrier && kind != OpKind::Duplicate && kind != OpKind::UseDevice &&
         kind != OpKind::Agreement;
}

/// The kind of such a call with buffers on a device, which does not match a call on the CPU.
[[nodiscard]] constexpr OpKind on_device(OpKind kind) noexcept {
  return static_cast<OpKind>(static_cast<std::uint8_t>(kind) | 0x80U);
}
[[nodiscard]] constexpr bool is_on_device(OpKind kind) noexcept {
  return static_cast<std::uint8_t>(kind) >= 0x80U;
}

/// The kind of such a call on a device in a CUDA graph, which does not match one that runs.
[[nodiscard]] constexpr OpKind captured(OpKind kind) noexcept {
  return static_cast<OpKind>(static_cast<std::uint8_t>(kind) | 0x40U);
}
[[nodiscard]] constexpr bool is_captured(OpKind kind) noexcept {
  return (static_cast<std::uint8_t>(kind) & 0x40U) != 0;
}

/// The kind of the messages by which the ranks of such a call offer each other their buffers,
/// before they know whether all do. A rank whose buffer cannot be used says so, and goes on without
/// the others' offers.
[[nodiscard]] constexpr OpKind offering(OpKind kind) noexcept {
  return static_cast<OpKind>(static_cast<std::uint8_t>(kind) | 0x20U);
}
[[nodiscard]] constexpr bool is_offering(OpKind kind) noexcept {
  return (static_cast<std::uint8_t>(kind) & 0x20U) != 0;
}

/// "neighbor_allreduce", "allreduce", …: the same on every device, in a capture, and in offers.
[[nodiscard]] std::string_view name_of(OpKind kind) noexcept;
/// "neighbor_allreduce", "allreduce on CUDA", "allreduce on CUDA, in a capture".
[[nodiscard]] std::string text_of(OpKind kind);

/// Independent streams of messages between two ranks. Messages of one lane
/// arrive in the order in which they were sent.
enum class Lane : std::uint8_t {
  Ordinary = 0,
  /// Messages that are held as a whole until their reader comes for them.
  Deep = 1,
  /// Deep too: messages of calls that two ranks alone make.
  Pair = 2,
  /// Deep too: messages that one rank sends and the other receives, each when it likes.
  Mail = 3,
};
inline constexpr std::size_t kLaneCount = 4;

[[nodiscard]] constexpr bool is_deep(Lane lane) noexcept { return lane != Lane::Ordinary; }

/// The other lane of calls that all ranks make; none for the lanes of two ranks.
[[nodiscard]] constexpr std::optional<Lane> lane_beside(Lane lane) noexcept {
  return lane == Lane::Ordinary ? std::optional(Lane::Deep)
         : lane == Lane::Deep   ? std::optional(Lane::Ordinary)
                                : std::nullopt;
}

/// The longest name that travels with a message. Longer ones are cut; their hash is of the whole.
inline constexpr std::size_t kMaxNameBytes = 63;

/// A copy of a name, as much of it as messages carry, that needs no memory of its own.
class CallName {
 public:
  CallName(std::string_view name) noexcept  // NOLINT: a name is a text
      : length_(static_cast<std::uint8_t>(std::min(name.size(), kMaxNameBytes))) {
    std::copy_n(name.data(), length_, text_.data());
  }

  [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), length_}; }

 private:
  std::array<char, kMaxNameBytes> text_;
  std::uint8_t length_;
};

/// The fingerprint of a call, as every rank of it must describe it.
struct Envelope {
  /// Elements, or −1 where ranks may differ.
  std::int64_t count = 0;
  std::uint32_t name_hash = 0;
  OpKind kind = OpKind::Barrier;
  Dtype dtype = Dtype::UInt8;
  /// The user's name for the tensor; belongs to whoever made the envelope.
  std::string_view name{};

  /// @param name outlives the envelope.
  static Envelope make(OpKind kind, Dtype dtype, std::int64_t count, std::string_view name = {});

  [[nodiscard]] bool matches(const Envelope& other) const noexcept {
    return count == other.count && name_hash == other.name_hash && kind == other.kind &&
           dtype == other.dtype;
  }
  /// "neighbor_allreduce(float32[1024], name 'w')", "allreduce(float32[1024] on CUDA)",
  /// "allreduce(float32[1024] on CUDA, in a capture)", "barrier", "win_create".
  [[nodiscard]] std::string describe() const;
};

/// Identifies one exchange of one call: the call's index in its context, and
/// the step within the call. Compares in the order of issue.
struct CallId {
  std::uint64_t value = 0;

  static CallId make(std::uint64_t call, std::uint32_t step) noexcept {
    return {(call << 16U) | (step & 0xffffU)};
  }
  [[nodiscard]] std::uint64_t call() const noexcept { return value >> 16U; }
  [[nodiscard]] std::uint32_t step() const noexcept {
    return static_cast<std::uint32_t>(value & 0xffffU);
  }
  friend auto operator<=>(const CallId&, const CallId&) = default;
};

/// Calls that two ranks make alone are counted per pair, from here on.
inline constexpr std::uint64_t kFirstPairCall = std::uint64_t{1} << 47U;

[[nodiscard]] constexpr bool is_pair_call(std::uint64_t call) noexcept {
  return call >= kFirstPairCall;
}

/// Messages are counted by their sender, per pair and direction, from here on. The receipts of a
/// rank have numbers of their own, which stay with it.
inline constexpr std::uint64_t kFirstMessageCall = kFirstPairCall + (std::uint64_t{1} << 46U);
inline constexpr std::uint64_t kFromHigherRank = std::uint64_t{1} << 45U;
inline constexpr std::uint64_t kReceipt = std::uint64_t{1} << 44U;

[[nodiscard]] constexpr bool is_message_call(std::uint64_t call) noexcept {
  return call >= kFirstMessageCall;
}

/// "call 5", "pair call 5", "message 5", "receipt 5".
[[nodiscard]] std::string call_text(std::uint64_t call);

/// Travels ahead of the bytes of each message.
struct MessageHeader {
  CallId id{};
  std::uint64_t bytes = 0;
  /// Weight with which the writer sends its value.
  double weight = 1.0;
  Envelope envelope{};
};

/// A message between two ranks outside the streams of data.
struct ControlMessage {
  enum class Kind : std::uint8_t {
    /// The sender's call was refused, or ended with an error.
    Refusal = 0,
    /// The sender did not accept the receiver's message.
    Rejection = 1,
    /// The sender has left its call before it ended: its wait took too long or was interrupted.
    Abandoned = 2,
    /// The sender cannot come to the receiver's call, because each waits for the other.
    Deadlock = 3,
    /// The sender makes no call of this context any more: the ranks that live go on without `call`,
    /// the number of one that is lost.
    Revocation = 4,
    /// All ranks form their group anew at the end of the step of number `call` (`Appointment`).
    Appointment = 5,
    /// The sender waits for the receiver's message in that call, and nothing moves: as what does
    /// the receiver make it? The text is the sender's own description of the call.
    Inquiry = 6,
    /// The receiver's inquiry found that the sender makes, or made, that call as another one.
    Contradiction = 7,
    /// The sender says something of its step of number `call` (`Statements`).
    Statement = 8,
    /// The sender's program cannot go on (`GivenUp`).
    GivenUp = 9,
  };

  Kind kind = Kind::Refusal;
  std::uint64_t call = 0;
  std::string text;
};

}  // namespace bluefog
