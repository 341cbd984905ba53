#include "bluefog_cpp/transport/shm/payload_pool.hpp"

#include <utility>

#include "bluefog_cpp/base/alignment.hpp"

namespace bluefog::shm {

void PayloadPool::give_memory(Block& block, std::size_t bytes) {
  block.place = region_.take(bytes);
  block.data = region_.at(block.place, bytes);
  block.bytes = bytes;
}

PayloadPool::Block* PayloadPool::add_deep(std::size_t bytes) {
  auto block = std::make_unique<Block>();
  give_memory(*block, round_up(bytes, kPage));
  return deep_.emplace_back(std::move(block)).get();
}

}  // namespace bluefog::shm
