#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/peer/peer_board.hpp"

namespace bluefog {

/// Memory of this rank's device from which other ranks fetch payloads, in slots of its own
/// allocation: these can be shown to other processes whatever allocator the user's memory is from.
///
/// A slot is used again when all readers of its payload have put their reads on their streams, and
/// on the device comes after those reads; until then another slot is taken, or made. So nobody
/// waits for a reader's host, and calls in a row between the same ranks take two slots in turns.
///
/// Calls are made with the device entered.
class Mailbox {
 public:
  struct Slot {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    gpu::EventHandle filled = nullptr;
    /// The call that filled the slot last, and the ranks that read it.
    std::uint64_t call = 0;
    std::vector<int> readers{};
  };

  /// @param board this rank's, where slots are shown. @param is_exported whether ranks of other
  ///   processes read the slots.
  Mailbox(gpu::CudaApi& cuda, PeerBoard& board, bool is_exported)
      : cuda_(cuda), board_(board), is_exported_(is_exported) {}

  /// A slot of at least `bytes` bytes for which `is_read` holds, and which was not the last one
  /// taken.
  /// @return its number. @throws CudaError; TransportError where there are too many.
  [[nodiscard]] std::size_t take(std::size_t bytes,
                                 const std::function<bool(const Slot&)>& is_read);
  [[nodiscard]] Slot& slot(std::size_t number) { return slots_[number]; }

  /// Frees the slots, once nobody uses them any more. @throws CudaError.
  void free_all();

 private:
  std::size_t make(std::size_t bytes);
  void free(const Slot& slot);

  gpu::CudaApi& cuda_;
  PeerBoard& board_;
  bool is_exported_;
  std::vector<Slot> slots_;
  std::size_t last_ = PeerBoard::kMostSlots;
};

/// Shows an event of this rank's device. @throws CudaError.
[[nodiscard]] SharedHandle show_event(gpu::CudaApi& cuda, gpu::EventHandle event, bool is_exported);

}  // namespace bluefog
