#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bluefog_cpp/device/memory_pool.hpp"
#include "bluefog_cpp/device/scratch.hpp"

namespace bluefog::gpu {

/// The streams and the memory of captured calls, apart from those of other calls.
///
/// A stream that was drawn into a capture is of no use to other calls before the capture's end.
/// Replays use the memory as long as there are graphs; all graphs share it, for their replays come
/// one after the other.
class CaptureLane {
 public:
  CaptureLane(std::shared_ptr<CudaApi> cuda, int device)
      : cuda_(cuda),
        scratch_(cuda),
        memory_(std::make_shared<MemoryPool>(std::move(cuda), device, MemoryKind::Device)) {}

  /// A stream that takes part in `capture` or in none. The device has been entered.
  /// @throws CudaError.
  [[nodiscard]] StreamHandle stream_for(std::uint64_t capture);
  [[nodiscard]] Scratch& scratch() noexcept { return scratch_; }
  [[nodiscard]] MemoryPool& memory() noexcept { return *memory_; }

  /// Gives everything back, when the last graph has ended. The device has been entered.
  /// @throws CudaError.
  void free();

 private:
  std::shared_ptr<CudaApi> cuda_;
  Scratch scratch_;
  std::shared_ptr<MemoryPool> memory_;
  std::vector<StreamHandle> streams_;
};

}  // namespace bluefog::gpu
