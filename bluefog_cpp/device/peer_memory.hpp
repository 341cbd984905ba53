#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/cuda/handles.hpp"
#include "bluefog_cpp/device/peer/peer_board.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"

namespace bluefog {

/// A block of a `PeerMemory`, as its owner shows it to the other ranks of its host. Travels as
/// bytes.
struct ShownBlock {
  /// The chunk in which the block lies.
  SharedHandle memory{};
  /// The owner's number of that chunk.
  std::uint64_t chunk = 0;
  /// The block's place in the chunk.
  std::uint64_t offset = 0;
  /// The owner's process, as `CudaApi::process` names it.
  std::uint64_t process = 0;
  /// The place in the owner's shared memory where it says that it has left.
  std::uint64_t board = 0;
  std::int32_t device = 0;
};

/// Memory of this rank's device that the other ranks of its host read and write, and theirs: opened
/// by CUDA IPC, or used as it is between threads of the same process.
///
/// Blocks lie in chunks of 2 MiB and more, each of which is shown and opened once; small ones share
/// them. Blocks are given out, opened and given back in the calls of the context, one at a time;
/// the stream and the events are for any thread.
class PeerMemory {
 public:
  /// @param host the memory that all ranks of the host reach.
  /// @param is_stuck whether the device does other work that may never end.
  /// @throws CudaError, TransportError.
  PeerMemory(std::shared_ptr<gpu::CudaApi> cuda, int device, shm::HostMemory& host, int rank,
             std::shared_ptr<const std::atomic<bool>> is_stuck);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();

  [[nodiscard]] gpu::CudaApi& cuda() noexcept { return *cuda_; }
  [[nodiscard]] gpu::DeviceScope enter() { return {*cuda_, device_}; }
  /// The stream for work that the host waits for: nothing else is put on it.
  [[nodiscard]] gpu::StreamHandle stream() const noexcept { return stream_; }
  /// The device has been entered.
  [[nodiscard]] gpu::Event take_event() { return events_->take(); }

  /// A block of this rank's device.
  struct Block {
    std::byte* data = nullptr;
    std::uint64_t chunk = 0;
  };
  /// At least `bytes` bytes, at a multiple of 256. @throws CudaError.
  [[nodiscard]] Block allocate(std::size_t bytes);
  [[nodiscard]] ShownBlock show(const Block& block) const;
  /// Frees a block that no rank has open any more. @throws CudaError.
  void release(const Block& block);

  /// Notes where `rank` will say that it has left.
  void meet(int rank, const ShownBlock& shown);
  /// A block of `rank`, as this rank's device reaches it. @throws CudaError where it does not.
  [[nodiscard]] std::byte* open(int rank, const ShownBlock& shown);
  /// Gives back one `open` of the block; call it as often as that. @throws CudaError.
  void close(int rank, const ShownBlock& shown);

  /// Keeps the event of work that nobody waits for any more, and that may go on.
  void note_stuck(gpu::Event event);
  /// Whether neither work of `note_stuck` nor other work that may never end is under way: CUDA
  /// would wait for it wherever memory is given back.
  [[nodiscard]] bool is_idle();

  /// At the context's end, when this rank makes no calls any more: gives back what it has opened,
  /// and its own blocks, if the other ranks do the same within `longest`; else these stay until the
  /// process ends. Idempotent.
  void leave(std::chrono::nanoseconds longest) noexcept;
  [[nodiscard]] bool has_left() const noexcept { return has_left_; }

 private:
  /// Lies in memory that the ranks of the host share.
  struct Board {
    std::atomic<std::uint32_t> has_left{0};
  };
  struct Chunk {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    SharedHandle shown{};
    /// The place behind which blocks begin.
    std::size_t end = 0;
    /// Blocks in use.
    int blocks = 0;
  };
  /// Another rank's chunk.
  struct Import {
    void* memory = nullptr;
    bool is_foreign = false;
    int opened = 0;
  };

  [[nodiscard]] std::uint64_t chunk_for(std::size_t bytes);
  [[nodiscard]] bool have_others_left() const;
  void give_all_back(std::chrono::nanoseconds longest);

  std::shared_ptr<gpu::CudaApi> cuda_;
  int device_;
  shm::HostMemory& host_;
  std::shared_ptr<const std::atomic<bool>> is_stuck_;
  std::uint64_t board_place_ = 0;
  Board* board_ = nullptr;
  std::shared_ptr<gpu::EventPool> events_;
  gpu::StreamHandle stream_ = nullptr;
  /// The chunks of this rank, by number.
  std::map<std::uint64_t, Chunk> chunks_;
  std::uint64_t next_chunk_ = 0;
  /// The chunks of others, by rank and number.
  std::map<std::pair<int, std::uint64_t>, Import> imports_;
  std::map<int, const Board*> boards_;
  std::atomic<bool> has_left_{false};
  std::mutex stuck_mutex_;
  std::vector<gpu::Event> stuck_;
};

}  // namespace bluefog
