#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "bluefog_cpp/transport/host_memory.hpp"
#include "ops/window/window_memory.hpp"

namespace bluefog::ops {

/// This rank's part of a window, in the memory that ranks of its host share, or, but for what
/// guards the buffers, in memory of its device.
class OwnPart {
 public:
  /// @param host this rank's memory, at `rank`. @param on_device the buffers' place; null: beside
  ///   the heads, on the host. @throws TransportError where memory is short.
  void allocate(shm::HostMemory& host, int rank, const WindowMemory::Shape& shape,
                std::byte* on_device) {
    const std::size_t bytes = on_device != nullptr ? WindowMemory::size_of_heads(shape)
                                                   : WindowMemory::size_of_block(shape);
    place_ = host.allocate(bytes);
    std::byte* const heads = host.at(rank, *place_, bytes);
    memory_ =
        on_device != nullptr ? WindowMemory(heads, on_device, shape) : WindowMemory(heads, shape);
  }
  /// Gives the memory back, when no rank uses it any more. Nothing where there is none.
  void release(shm::HostMemory& host) {
    memory_.reset();
    if (const auto place = std::exchange(place_, std::nullopt)) {
      host.release(*place);
    }
  }

  [[nodiscard]] bool is_there() const noexcept { return memory_.has_value(); }
  /// The place in this rank's shared memory that other ranks are told of.
  [[nodiscard]] std::uint64_t place() const { return *place_; }
  [[nodiscard]] const WindowMemory& memory() const { return *memory_; }
  [[nodiscard]] WindowMemory& memory() { return *memory_; }

 private:
  std::optional<std::uint64_t> place_;
  std::optional<WindowMemory> memory_;
};

}  // namespace bluefog::ops
