#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "bluefog_cpp/device/peer_memory.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_record.hpp"

namespace bluefog::ops {

/// A window's buffers in memory of devices: this rank's block, and the other ranks' blocks where
/// this one has opened them. Not in use where the buffers are on the host.
class DeviceBuffers {
 public:
  explicit DeviceBuffers(const WindowIdentity& window) : window_(window) {}

  /// Whether this rank's buffers could lie in its device's memory, as far as it knows by itself.
  [[nodiscard]] bool may_be_used() const;
  /// Whether they do.
  [[nodiscard]] bool are_used() const noexcept { return memory_ != nullptr; }

  /// Notes in `record` where this rank's buffers are, or why they cannot be there.
  /// @throws CudaError where memory is short.
  void make_room(WindowRecord& record);
  /// Opens the buffers of neighbours. @throws CudaError where this rank's device does not reach
  /// another one's.
  void open(const std::vector<WindowRecord>& records);
  void close() noexcept;
  /// Gives this rank's block back, once no other rank has it open.
  void release() noexcept;
  /// From now on the buffers are on the host.
  void move_to_host() noexcept { memory_ = nullptr; }

  /// The memory that holds the buffers, where they are used.
  [[nodiscard]] PeerMemory& memory() const noexcept { return *memory_; }
  /// The kernel that sums the tensor's dtype.
  [[nodiscard]] gpu::FunctionHandle sum_kernel() const noexcept { return sum_kernel_; }
  /// This rank's buffers; null where it has none on its device.
  [[nodiscard]] std::byte* own() const noexcept { return block_ ? block_->data : nullptr; }
  /// The buffers of another rank; null where it is no neighbour.
  [[nodiscard]] std::byte* of(std::size_t rank) const { return opened_[rank].buffers; }

 private:
  /// Another rank's buffers, where this one's device reaches them.
  struct Opened {
    std::byte* buffers = nullptr;
    ShownBlock block{};
  };

  const WindowIdentity& window_;
  PeerMemory* memory_ = nullptr;
  gpu::FunctionHandle sum_kernel_ = nullptr;
  std::optional<PeerMemory::Block> block_;
  /// One per rank, in their order.
  std::vector<Opened> opened_;
};

}  // namespace bluefog::ops
