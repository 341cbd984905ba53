#pragma once

#include <cstddef>
#include <map>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/peer/peer_board.hpp"

namespace bluefog {

/// The mailbox of another rank as this process uses it: opened when it is first needed, and kept;
/// used as it is where the rank is of the same process.
///
/// Calls are made with this rank's device entered.
class PeerImports {
 public:
  /// @param process this rank's.
  PeerImports(gpu::CudaApi& cuda, const PeerBoard& board, std::uint64_t process)
      : cuda_(cuda), board_(board), is_foreign_(board.process != process) {}

  /// @throws CudaError, where the device does not reach the other rank's.
  [[nodiscard]] const std::byte* memory(std::size_t slot);
  [[nodiscard]] gpu::EventHandle filled(std::size_t slot);
  /// The event after which the reads by that call of the other rank are done.
  [[nodiscard]] gpu::EventHandle read(std::uint64_t call);

  [[nodiscard]] const PeerBoard& board() const noexcept { return board_; }
  [[nodiscard]] bool is_foreign() const noexcept { return is_foreign_; }

  /// Gives back what was opened, once nothing on the streams uses it any more. @throws CudaError.
  void close();

 private:
  gpu::EventHandle event(const SharedHandle& shown);

  gpu::CudaApi& cuda_;
  const PeerBoard& board_;
  bool is_foreign_;
  /// The memory that was opened, by slot.
  std::map<std::size_t, void*> memory_;
  std::map<const SharedHandle*, gpu::EventHandle> events_;
};

}  // namespace bluefog
