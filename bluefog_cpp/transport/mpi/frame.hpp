#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "bluefog_cpp/transport/message.hpp"

namespace bluefog::mpi {

/// The kinds of MPI message in a data stream.
enum class FrameKind : std::uint32_t {
  Head = 1,   ///< first part of a message
  Chunk = 2,  ///< a further part
  Abort = 3,  ///< the message ends here; the payload says why
};

/// Precedes the payload of each MPI message: both travel as one.
struct FrameHead {
  FrameKind kind = FrameKind::Head;
  std::uint32_t payload_bytes = 0;
  /// Frames that were sent before on the other one of the lanes `Ordinary` and `Deep`; set in a
  /// `Head`.
  std::uint64_t on_other_lane = 0;
  /// Set in a `Head`; others leave it at its default. The name of its envelope lies in `name`.
  MessageHeader header{};
  /// Zero-terminated.
  std::array<char, kMaxNameBytes + 1> name{};
};

/// Room that a `FrameHead` takes: the payload after it starts on a cache line.
inline constexpr std::size_t kFrameHeadBytes = 192;
static_assert(sizeof(FrameHead) <= kFrameHeadBytes && std::is_trivially_copyable_v<FrameHead>);

/// A message from rank to rank outside the streams of data.
struct ControlFrame {
  enum class Type : std::uint32_t {
    /// A `ControlMessage`.
    Message = 1,
    /// The sender leaves. `counts`: data frames that it has sent to the receiver, by lane.
    Goodbye = 2,
    /// `counts`: messages of the receiver that the sender has taken, by lane. Has no text.
    Receipt = 3,
  };

  Type type = Type::Message;
  ControlMessage::Kind kind = ControlMessage::Kind::Refusal;
  std::uint64_t call = 0;
  std::array<std::uint64_t, kLaneCount> counts{};
  /// Zero-terminated.
  std::array<char, 472> text{};

  /// The number of bytes that travel.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return type == Type::Receipt ? offsetof(ControlFrame, text) : sizeof(ControlFrame);
  }
};
static_assert(std::is_trivially_copyable_v<ControlFrame> &&
              std::is_standard_layout_v<ControlFrame>);

/// Tags on the transport's own communicator: lanes, then control.
[[nodiscard]] constexpr int tag_of(Lane lane) noexcept { return static_cast<int>(lane); }
inline constexpr int kControlTag = static_cast<int>(kLaneCount);

}  // namespace bluefog::mpi
