#pragma once

#include <cstddef>
#include <map>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/peer/peer_board.hpp"

namespace bluefog {

/// What another rank shows of its mailbox, as this process uses it: opened when it is first needed,
/// and then kept; that of a rank of the same process is used as it is.
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
  /// What that call of the other rank's has read is read.
  [[nodiscard]] gpu::EventHandle read(std::uint64_t call);

  [[nodiscard]] const PeerBoard& board() const noexcept { return board_; }
  [[nodiscard]] bool is_foreign() const noexcept { return is_foreign_; }

  /// Once nothing on the streams uses them any more. @throws CudaError.
  void close();

 private:
  gpu::EventHandle event(const SharedHandle& shown);

  gpu::CudaApi& cuda_;
  const PeerBoard& board_;
  bool is_foreign_;
  /// By slot.
  std::map<std::size_t, void*> memory_;
  std::map<const SharedHandle*, gpu::EventHandle> events_;
};

}  // namespace bluefog
