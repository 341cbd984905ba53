#include "bluefog_cpp/transport/cuda/host_staging.hpp"

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

HostBlock::~HostBlock() {
  if (pool_ && data_ != nullptr) {
    pool_->give_back({.data = data_, .bytes = bytes_, .uses = std::move(uses_)});
  }
}

HostStaging::HostStaging(std::shared_ptr<CudaApi> cuda, std::shared_ptr<EventPool> events,
                         int device)
    : cuda_(std::move(cuda)), events_(std::move(events)), device_(device) {
  to_host_ = cuda_->make_stream();
  to_device_ = cuda_->make_stream();
}

HostStaging::~HostStaging() {
  try {
    const DeviceScope scope = enter();
    free_idle();
    cuda_->free_stream(to_host_);
    cuda_->free_stream(to_device_);
  } catch (const CudaError&) {  // NOLINT: of the process's end, when CUDA has gone already
  }
}

HostBlock HostStaging::take(std::size_t bytes) {
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

std::byte* HostStaging::allocate(std::size_t bytes) {
  try {
    return static_cast<std::byte*>(cuda_->allocate_host(bytes));
  } catch (const CudaError&) {
    free_idle();
  }
  return static_cast<std::byte*>(cuda_->allocate_host(bytes));
}

bool HostStaging::is_free(const Idle& block) {
  return std::ranges::all_of(block.uses,
                             [this](const auto& use) { return cuda_->has_happened(use->get()); });
}

// What the device still uses stays.
void HostStaging::free_idle() {
  const auto in_use = std::stable_partition(idle_.begin(), idle_.end(),
                                            [this](const Idle& block) { return !is_free(block); });
  for (auto block = in_use; block != idle_.end(); ++block) {
    cuda_->free_host(block->data);
  }
  idle_.erase(in_use, idle_.end());
}

void HostStaging::give_back(Idle block) {
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(block));
}

}  // namespace bluefog::gpu
