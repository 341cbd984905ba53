#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "bluefog_cpp/transport/message.hpp"

namespace bluefog::tcp {

/// A pair of ranks has a connection for each lane that it uses, and one for control frames.
inline constexpr std::size_t kControlChannel = kLaneCount;
inline constexpr std::size_t kChannelCount = kLaneCount + 1;

enum class FrameKind : std::uint8_t {
  Head = 1,     ///< a message begins; its first piece follows
  Piece = 2,    ///< a further piece
  Abort = 3,    ///< the message ends here; the payload says why
  Control = 4,  ///< a `ControlMessage`
  Receipt = 5,
  /// The sender leaves, and sends nothing more on this connection.
  Goodbye = 6,
  /// A sign of life.
  Heartbeat = 7,
};

/// Begins every frame; ranks of other byte orders are refused in the greeting.
struct FrameStart {
  FrameKind kind = FrameKind::Piece;
  /// The length of a `Head`'s name, the kind of a `Control`.
  std::uint8_t detail = 0;
  std::uint16_t unused = 0;
  std::uint32_t payload_bytes = 0;
};

/// Follows the start of a `Head`; the name comes after it.
struct HeadRest {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  double weight = 1.0;
  /// Messages that were begun before on the other one of the lanes `Ordinary` and `Deep`.
  std::uint64_t on_other_lane = 0;
  std::int64_t count = 0;
  std::uint32_t name_hash = 0;
  std::uint8_t op = 0;
  std::uint8_t dtype = 0;
  std::uint16_t unused = 0;
};

static_assert(sizeof(FrameStart) == 8 && std::is_trivially_copyable_v<FrameStart>);
static_assert(sizeof(HeadRest) == 48 && std::is_trivially_copyable_v<HeadRest>);

/// The longest run of bytes before a payload.
inline constexpr std::size_t kMostFrontBytes =
    sizeof(FrameStart) + sizeof(HeadRest) + kMaxNameBytes;

/// The bytes before the payload of a frame.
class FrameFront {
 public:
  /// @param payload_bytes of the first piece. @param on_other_lane as in `HeadRest`.
  [[nodiscard]] static FrameFront head(const MessageHeader& header, std::size_t payload_bytes,
                                       std::uint64_t on_other_lane = 0) {
    const std::string_view name = header.envelope.name.substr(0, kMaxNameBytes);
    FrameFront front;
    front.add(FrameStart{.kind = FrameKind::Head,
                         .detail = static_cast<std::uint8_t>(name.size()),
                         .payload_bytes = static_cast<std::uint32_t>(payload_bytes)});
    front.add(HeadRest{.id = header.id.value,
                       .bytes = header.bytes,
                       .weight = header.weight,
                       .on_other_lane = on_other_lane,
                       .count = header.envelope.count,
                       .name_hash = header.envelope.name_hash,
                       .op = static_cast<std::uint8_t>(header.envelope.kind),
                       .dtype = static_cast<std::uint8_t>(header.envelope.dtype)});
    std::memcpy(front.bytes_.data() + front.length_, name.data(), name.size());
    front.length_ += name.size();
    return front;
  }
  /// The front of a `Piece` or an `Abort`.
  [[nodiscard]] static FrameFront part(FrameKind kind, std::size_t payload_bytes) {
    FrameFront front;
    front.add(FrameStart{.kind = kind, .payload_bytes = static_cast<std::uint32_t>(payload_bytes)});
    return front;
  }
  /// The front of a frame with a number: a control message's call, or the messages that a receipt
  /// is for.
  [[nodiscard]] static FrameFront numbered(FrameKind kind, std::uint64_t number,
                                           std::size_t payload_bytes = 0, std::uint8_t detail = 0) {
    FrameFront front;
    front.add(FrameStart{.kind = kind,
                         .detail = detail,
                         .payload_bytes = static_cast<std::uint32_t>(payload_bytes)});
    front.add(number);
    return front;
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {bytes_.data(), length_};
  }

 private:
  template <typename Part>
  void add(const Part& part) noexcept {
    std::memcpy(bytes_.data() + length_, &part, sizeof part);
    length_ += sizeof part;
  }

  std::array<std::byte, kMostFrontBytes> bytes_;
  std::size_t length_ = 0;
};

/// The number of bytes before the payload; 0 if no frame begins so.
[[nodiscard]] constexpr std::size_t front_bytes(const FrameStart& start) noexcept {
  switch (start.kind) {
    case FrameKind::Head:
      return start.detail > kMaxNameBytes ? 0
                                          : sizeof(FrameStart) + sizeof(HeadRest) + start.detail;
    case FrameKind::Piece:
    case FrameKind::Abort:
      return sizeof(FrameStart);
    case FrameKind::Control:
    case FrameKind::Receipt:
    case FrameKind::Goodbye:
    case FrameKind::Heartbeat:
      return sizeof(FrameStart) + sizeof(std::uint64_t);
  }
  return 0;
}

}  // namespace bluefog::tcp
