#include "python/bindings/result_memory.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "bluefog_cpp/settings.hpp"

namespace bluefog::python {
namespace {

/// Size of the processor's large pages. Smaller results cost few pages: torch's allocator has them.
constexpr std::size_t kLargePage = std::size_t{2} << 20U;

struct Free {
  void operator()(void* memory) const noexcept { std::free(memory); }
};

/// Memory of one result, in whole large pages.
struct Block {
  std::unique_ptr<void, Free> memory;
  std::size_t bytes = 0;
};

Block new_block(std::size_t bytes) {
  Block block;
  block.memory.reset(std::aligned_alloc(kLargePage, bytes));
  block.bytes = bytes;
  if (!block.memory) {
    throw std::bad_alloc();
  }
  // Advice: without large pages it works as well, only slower the first time.
  static_cast<void>(::madvise(block.memory.get(), bytes, MADV_HUGEPAGE));
  return block;
}

/// Blocks of results that have gone, for results to come. Thread-safe.
class BlockCache {
 public:
  explicit BlockCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// The block of that size that was given back last, or a new one.
  Block take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                    [bytes](const Block& block) { return block.bytes == bytes; });
    if (found == blocks_.rend()) {
      return new_block(bytes);
    }
    Block block = std::move(*found);
    blocks_.erase(std::prev(found.base()));
    bytes_ -= bytes;
    return block;
  }

  /// Keeps `block`; the oldest blocks go when there are too many.
  void give(Block block) {
    const std::scoped_lock lock(mutex_);
    bytes_ += block.bytes;
    blocks_.push_back(std::move(block));
    while (bytes_ > most_bytes_) {
      bytes_ -= blocks_.front().bytes;
      blocks_.pop_front();
    }
  }

 private:
  std::size_t most_bytes_;
  std::mutex mutex_;
  std::deque<Block> blocks_;
  std::size_t bytes_ = 0;
};

/// The cache never ends: tensors may outlive everything else.
BlockCache& cache() {
  static auto* const blocks =
      new BlockCache(static_cast<std::size_t>(Settings::for_start().result_cache_bytes));
  return *blocks;
}

class ResultAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const std::size_t rounded =
        (std::max(bytes, std::size_t{1}) + kLargePage - 1) / kLargePage * kLargePage;
    auto block = std::make_unique<Block>(cache().take(rounded));
    void* const memory = block->memory.get();
    return {memory, block.release(), &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void give_back(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    cache().give(std::move(*block));
  }
};

}  // namespace

at::Tensor fresh_tensor(c10::IntArrayRef shape, c10::ScalarType dtype) {
  const auto bytes =
      static_cast<std::size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
  if (bytes < kLargePage) {
    return at::empty(shape, at::TensorOptions().dtype(dtype));
  }
  static ResultAllocator allocator;
  return at::detail::empty_generic(shape, &allocator, c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   dtype, std::nullopt);
}

at::Tensor fresh_like(const at::Tensor& tensor) {
  if (tensor.is_cuda() && tensor.layout() == at::kStrided) {
    return at::empty(tensor.sizes(), tensor.options().requires_grad(false));
  }
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided) {
    return tensor;  // the call says what is wrong with it
  }
  return fresh_tensor(tensor.sizes(), tensor.scalar_type());
}

}  // namespace bluefog::python
