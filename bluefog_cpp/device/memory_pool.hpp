#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bluefog_cpp/device/cuda/handles.hpp"

namespace bluefog::gpu {

class MemoryPool;

/// The place of a pool's memory.
enum class MemoryKind : std::uint8_t {
  Device,
  /// Memory of the host that is locked to its pages.
  Host,
};

/// Memory that goes back to its pool, which hands it on once all events that were noted have
/// happened.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  MemoryBlock(MemoryBlock&& other) noexcept
      : pool_(std::move(other.pool_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        uses_(std::move(other.uses_)) {}
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(uses_, other.uses_);
    return *this;
  }
  ~MemoryBlock();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// The device uses the memory until `event` happens.
  void note_use(std::shared_ptr<const Event> event) { uses_.push_back(std::move(event)); }
  /// Keeps the memory from ever being used again: the device may use it for an unknown time.
  void lose() noexcept { pool_.reset(); }

 private:
  friend class MemoryPool;
  MemoryBlock(std::shared_ptr<MemoryPool> pool, std::byte* data, std::size_t bytes)
      : pool_(std::move(pool)), data_(data), bytes_(bytes) {}

  std::shared_ptr<MemoryPool> pool_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::shared_ptr<const Event>> uses_;
};

/// Memory of one kind for one device, used again. It grows to at most four times the most that was
/// in use at once, whatever the sizes, as far as memory may be given back. Thread-safe.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// @param may_free when it holds, memory may be given back to CUDA, which may wait for all work
  ///   of the device: what is left at the pool's end, when it does not, is lost. Null: at the
  ///   pool's end, or where memory is short.
  MemoryPool(std::shared_ptr<CudaApi> cuda, int device, MemoryKind kind,
             std::shared_ptr<const std::atomic<bool>> may_free = nullptr)
      : cuda_(std::move(cuda)), device_(device), kind_(kind), may_free_(std::move(may_free)) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool();

  /// At least `bytes` bytes; none for 0. The device has been entered. @throws CudaError.
  [[nodiscard]] MemoryBlock take(std::size_t bytes);

 private:
  friend class MemoryBlock;
  struct Idle {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::vector<std::shared_ptr<const Event>> uses{};
  };

  using Place = std::vector<Idle>::iterator;

  void give_back(Idle block);
  /// The shortest idle block of `bytes` to `longest` bytes; the list's end where there is none.
  [[nodiscard]] Place find_idle(std::size_t bytes, std::size_t longest);
  [[nodiscard]] MemoryBlock take_idle(Place block);
  /// Frees idle blocks until there is room for `size` bytes more.
  void keep_in_bounds(std::size_t size);
  [[nodiscard]] bool is_out_of_bounds(std::size_t size) const;
  Place free_block(Place block);
  [[nodiscard]] bool is_free(const Idle& block);
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  [[nodiscard]] std::byte* allocate_now(std::size_t bytes);
  void free_idle();

  std::shared_ptr<CudaApi> cuda_;
  int device_;
  MemoryKind kind_;
  std::shared_ptr<const std::atomic<bool>> may_free_;
  std::mutex mutex_;
  /// The idle blocks, in the order in which they were given back.
  std::vector<Idle> idle_;
  std::size_t allocated_ = 0;
  std::size_t in_use_ = 0;
  std::size_t most_in_use_ = 0;
};

}  // namespace bluefog::gpu
