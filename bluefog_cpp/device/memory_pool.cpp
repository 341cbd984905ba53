#include "bluefog_cpp/device/memory_pool.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::gpu {
namespace {

/// The most memory kept, in multiples of the most in use at once: calls need blocks of many sizes.
constexpr std::size_t kMostTimes = 4;

/// The size of a block, in steps of at most an eighth: calls of nearly the same size share memory.
std::size_t block_size_for(std::size_t bytes) {
  const std::size_t step = std::max(kPage, std::bit_floor(bytes) / 8);
  return round_up(bytes, step);
}

}  // namespace

MemoryBlock::~MemoryBlock() {
  if (pool_ && data_ != nullptr) {
    pool_->give_back({.data = data_, .bytes = bytes_, .uses = std::move(uses_)});
  }
}

MemoryPool::~MemoryPool() {
  if (may_free_ && !may_free_->load()) {
    return;  // CUDA would wait for work that may never end
  }
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
  if (const auto found = find_idle(bytes, 2 * std::max(bytes, kPage)); found != idle_.end()) {
    return take_idle(found);
  }
  const std::size_t size = block_size_for(bytes);
  if (is_out_of_bounds(size)) {
    if (const auto found = find_idle(bytes, SIZE_MAX); found != idle_.end()) {
      return take_idle(found);
    }
    keep_in_bounds(size);
  }
  std::byte* const data = allocate(size);
  allocated_ += size;
  in_use_ += size;
  most_in_use_ = std::max(most_in_use_, in_use_);
  return {shared_from_this(), data, size};
}

MemoryPool::Place MemoryPool::find_idle(std::size_t bytes, std::size_t longest) {
  auto best = idle_.end();
  for (auto block = idle_.begin(); block != idle_.end(); ++block) {
    const bool fits = block->bytes >= bytes && block->bytes <= longest;
    if (fits && (best == idle_.end() || block->bytes < best->bytes) && is_free(*block)) {
      best = block;
    }
  }
  return best;
}

MemoryBlock MemoryPool::take_idle(Place block) {
  const Idle found{.data = block->data, .bytes = block->bytes};
  idle_.erase(block);
  in_use_ += found.bytes;
  most_in_use_ = std::max(most_in_use_, in_use_);
  return {shared_from_this(), found.data, found.bytes};
}

bool MemoryPool::is_out_of_bounds(std::size_t size) const {
  return allocated_ + size > kMostTimes * std::max(most_in_use_, in_use_ + size);
}

void MemoryPool::keep_in_bounds(std::size_t size) {
  if (!may_free_ || !may_free_->load()) {
    return;
  }
  for (auto block = idle_.begin(); block != idle_.end() && is_out_of_bounds(size);) {
    block = is_free(*block) ? free_block(block) : block + 1;
  }
}

// Frees a block, which is lost to the pool also where CUDA fails to free it.
MemoryPool::Place MemoryPool::free_block(Place block) {
  const Idle taken = std::move(*block);
  const Place next = idle_.erase(block);
  if (kind_ == MemoryKind::Host) {
    cuda_->free_host(taken.data);
  } else {
    cuda_->free(taken.data);
  }
  allocated_ -= taken.bytes;
  return next;
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

// Frees the idle blocks, but for those that the device still uses.
void MemoryPool::free_idle() {
  for (auto block = idle_.begin(); block != idle_.end();) {
    block = is_free(*block) ? free_block(block) : block + 1;
  }
}

void MemoryPool::give_back(Idle block) {
  const std::scoped_lock lock(mutex_);
  in_use_ -= block.bytes;
  idle_.push_back(std::move(block));
}

}  // namespace bluefog::gpu
