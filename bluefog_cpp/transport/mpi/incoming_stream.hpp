#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/transport/mpi/aligned_bytes.hpp"
#include "bluefog_cpp/transport/mpi/outgoing_stream.hpp"

namespace bluefog::mpi {

/// Messages from one rank on one lane, read in place in a ring of receives that
/// are posted ahead.
class IncomingStream final : private RequestOwner {
 public:
  /// Posts `depth` receives: memory for as many chunks.
  IncomingStream(const StreamParts& parts, int rank, Lane lane);
  IncomingStream(const IncomingStream&) = delete;
  IncomingStream& operator=(const IncomingStream&) = delete;

  // As the functions of `Transport` with the same names.
  [[nodiscard]] const MessageHeader* arrived();
  [[nodiscard]] std::span<const std::byte> readable();
  void consume(std::size_t bytes);
  [[nodiscard]] bool at_end() const noexcept { return used_ == header_.bytes; }
  [[nodiscard]] const std::optional<std::string>& abort_reason() const noexcept {
    return abort_reason_;
  }
  void finish();

  /// Frames that have come so far.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }

  /// Ends the receives that are posted. @return false if one of them would not end.
  [[nodiscard]] bool cancel() noexcept;

 private:
  struct Slot {
    MPI_Request request = MPI_REQUEST_NULL;
    std::size_t bytes = 0;
  };

  void on_ended(int code, int source, std::size_t bytes) noexcept override;
  [[nodiscard]] std::byte* memory_of(std::size_t slot) const noexcept {
    return memory_.data() + slot * slot_bytes_;
  }
  void post(std::size_t slot) noexcept;
  bool open_next_frame();
  void close_frame() noexcept;

  StreamParts parts_;
  int rank_;
  Lane lane_;
  std::size_t place_;
  std::size_t slot_bytes_;
  AlignedBytes memory_;
  std::vector<Slot> ring_;
  // Frames are counted; frame n lies in slot n modulo the ring's size.
  std::uint64_t read_ = 0;      // closed by the reader
  std::uint64_t received_ = 0;  // ended receives

  MessageHeader header_{};
  std::string name_;
  bool has_message_ = false;
  bool frame_open_ = false;
  const std::byte* chunk_ = nullptr;
  std::size_t chunk_left_ = 0;
  std::size_t used_ = 0;
  std::optional<std::string> abort_reason_;
};

}  // namespace bluefog::mpi
