#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "bluefog_cpp/transport/mpi/aligned_bytes.hpp"
#include "bluefog_cpp/transport/mpi/frame.hpp"

namespace bluefog::mpi {

/// A frame that is being sent: a copy of its own, because callers overwrite
/// their payload while it is on its way.
struct StagedFrame {
  AlignedBytes memory;
  std::size_t bytes = 0;
  /// Readers that it still has to be sent to, and the one who stages it.
  int uses = 0;
};

/// Frames for reuse: after the first steps nothing is allocated.
class StagingPool {
 public:
  explicit StagingPool(std::size_t payload_bytes) : payload_bytes_(payload_bytes) {}

  /// A frame with a copy of `payload`, at most the pool's payload size. The
  /// caller releases it when it has been given to all readers.
  /// @param on_other_lane as in `FrameHead`.
  [[nodiscard]] StagedFrame& stage(FrameKind kind, const MessageHeader& header,
                                   std::span<const std::byte> payload, std::uint64_t on_other_lane);

  /// One use less; the last one gives the frame back.
  void release(StagedFrame& frame) noexcept;

 private:
  std::size_t payload_bytes_;
  std::vector<std::unique_ptr<StagedFrame>> frames_;
  std::vector<StagedFrame*> free_;
};

}  // namespace bluefog::mpi
