#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/transport/mpi/aligned_bytes.hpp"
#include "bluefog_cpp/transport/mpi/outgoing_stream.hpp"

namespace bluefog::mpi {

/// Messages from one rank on one lane, read in place in the receives that were posted ahead. On
/// deep lanes the frames that have come make room for more, whether anybody reads them or not; the
/// stream then takes memory for the whole message, and keeps it for later ones.
class IncomingStream final : private RequestOwner {
 public:
  /// Posts `depth` receives: memory for as many chunks.
  IncomingStream(const StreamParts& parts, int rank, Lane lane);
  IncomingStream(const IncomingStream&) = delete;
  IncomingStream& operator=(const IncomingStream&) = delete;

  // These do the work of the functions of `Transport` with the same names.
  [[nodiscard]] const MessageHeader* arrived();
  [[nodiscard]] std::span<const std::byte> readable();
  void consume(std::size_t bytes);
  [[nodiscard]] bool at_end() const noexcept { return used_ == header_.bytes; }
  [[nodiscard]] const std::optional<std::string>& abort_reason() const noexcept {
    return abort_reason_;
  }
  void finish();

  /// That of the arrived message, as in `FrameHead`.
  [[nodiscard]] std::uint64_t on_other_lane() const noexcept { return on_other_lane_; }
  /// Frames that have come so far.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  /// Messages that were taken so far.
  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
  /// Whether the message `id`, or a later one, has come to its end.
  [[nodiscard]] bool has_come(CallId id) const noexcept { return whole_ >= id; }

  /// Ends the receives that are posted. @return false if one of them would not end.
  [[nodiscard]] bool cancel() noexcept;

 private:
  struct Posted {
    MPI_Request request = MPI_REQUEST_NULL;
    AlignedBytes memory{};
  };
  struct Frame {
    AlignedBytes memory{};
    std::size_t bytes = 0;
  };

  void on_ended(int code, int source, std::size_t bytes) noexcept override;
  /// Posts receives as far as there is room; false: none is posted.
  bool post_more() noexcept;
  bool post() noexcept;
  void watch_oldest() noexcept;
  void note_arrival(const Frame& frame) noexcept;
  bool open_next_frame();
  void close_frame() noexcept;

  StreamParts parts_;
  int rank_;
  Lane lane_;
  std::size_t place_;
  std::size_t slot_bytes_;
  std::vector<AlignedBytes> free_;
  // Receives are counted; number n lies in place n modulo the ring's size.
  std::vector<Posted> ring_;
  std::uint64_t posted_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t taken_ = 0;
  /// The frames that have come and are not used up; the first may be open.
  std::deque<Frame> frames_;
  /// The last message that began to come, and the number of its bytes that are missing.
  CallId coming_{};
  std::size_t missing_ = 0;
  CallId whole_{};

  MessageHeader header_{};
  std::uint64_t on_other_lane_ = 0;
  std::string name_;
  bool has_message_ = false;
  bool frame_open_ = false;
  const std::byte* chunk_ = nullptr;
  std::size_t chunk_left_ = 0;
  std::size_t used_ = 0;
  std::optional<std::string> abort_reason_;
};

}  // namespace bluefog::mpi
