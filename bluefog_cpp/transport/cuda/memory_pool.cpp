#include "bluefog_cpp/transport/cuda/memory_pool.hpp"

#include <algorithm>
#include <bit>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::gpu {
namespace {

constexpr std::size_t kPageBytes = 4096;

/// In steps of at most an eighth, so that calls of nearly the same size share memory.
std::size_t block_size_for(std::size_t bytes) {
  const std::size_t step = std::max(kPageBytes, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

MemoryBlock::~MemoryBlock() {
  if (pool_ && data_ != nullptr) {
    pool_->give_back({.data = data_, .bytes = bytes_, .uses = std::move(uses_)});
  }
}

MemoryPool::~MemoryPool() {
  try {
    const DeviceScope scope(*cuda_, device_);
    free_idle();
  } catch (const CudaError&) {  // NOLINT: of the process's end, when CUDA has gone already
  }
}

MemoryBlock MemoryPool::take(std::size_t bytes) {
  if (bytes == 0) {
    return {};
  }
  const std::scoped_lock lock(mutex_);
  auto best = idle_.end();
  for (auto block = idle_.begin(); block != idle_.end(); ++block) {
    const bool fits = block->bytes >= bytes && block->bytes <= 2 * std::max(bytes, kPageBytes);
    if (fits && (best == idle_.end() || block->bytes < best->bytes) && is_free(*block)) {
      best = block;
    }
  }
  if (best != idle_.end()) {
    const Idle found{.data = best->data, .bytes = best->bytes};
    idle_.erase(best);
    return {shared_from_this(), found.data, found.bytes};
  }
  const std::size_t size = block_size_for(bytes);
  return {shared_from_this(), allocate(size), size};
}

std::byte* MemoryPool::allocate(std::size_t bytes) {
  try {
    return allocate_now(bytes);
  } catch (const CudaError&) {
    free_idle();
  }
  return allocate_now(bytes);
}

std::byte* MemoryPool::allocate_now(std::size_t bytes) {
  return static_cast<std::byte*>(kind_ == MemoryKind::Host ? cuda_->allocate_host(bytes)
                                                           : cuda_->allocate(bytes));
}

bool MemoryPool::is_free(const Idle& block) {
  return std::ranges::all_of(block.uses,
                             [this](const auto& use) { return cuda_->has_happened(use->get()); });
}

// What the device still uses stays.
void MemoryPool::free_idle() {
  const auto unused = std::stable_partition(idle_.begin(), idle_.end(),
                                            [this](const Idle& block) { return !is_free(block); });
  for (auto block = unused; block != idle_.end(); ++block) {
    if (kind_ == MemoryKind::Host) {
      cuda_->free_host(block->data);
    } else {
      cuda_->free(block->data);
    }
  }
  idle_.erase(unused, idle_.end());
}

void MemoryPool::give_back(Idle block) {
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(block));
}

}  // namespace bluefog::gpu
