#include "bluefog_cpp/transport/tcp/streams/block_pool.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace bluefog::tcp {
namespace {

std::size_t class_of(std::size_t bytes) noexcept {
  const std::size_t size = std::clamp(bytes, BlockPool::kLeastBytes, BlockPool::kMostBytes) - 1;
  return static_cast<std::size_t>(std::bit_width(size) -
                                  std::bit_width(BlockPool::kLeastBytes - 1));
}

}  // namespace

BlockPool::~BlockPool() {
  for (const auto& blocks : free_) {
    for (std::byte* const block : blocks) {
      std::free(block);
    }
  }
}

BlockPool::Block BlockPool::take(std::size_t bytes) {
  const std::size_t size_class = class_of(bytes);
  const std::size_t size = kLeastBytes << size_class;
  auto& blocks = free_[size_class];
  if (blocks.empty()) {
    blocks.reserve(made_[size_class] + 1);
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(kCacheLine, size));
    if (data == nullptr) {
      throw std::bad_alloc();
    }
    ++made_[size_class];
    return {this, data, size};
  }
  std::byte* const data = blocks.back();
  blocks.pop_back();
  return {this, data, size};
}

void BlockPool::give_back(std::byte* data, std::size_t bytes) noexcept {
  free_[class_of(bytes)].push_back(data);
}

}  // namespace bluefog::tcp
