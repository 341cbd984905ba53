#include "bluefog_cpp/transport/shm/payload_pool.hpp"

#include <utility>

#include "bluefog_cpp/transport/shm/region_layout.hpp"

namespace bluefog::shm {

PayloadPool::PayloadPool(std::shared_ptr<SharedRegion> region, std::size_t place,
                         std::size_t chunk_bytes, std::size_t slots)
    : region_(std::move(region)), chunk_bytes_(chunk_bytes), slots_(slots) {
  for (Block& block : slots_) {
    block.place = place;
    block.bytes = chunk_bytes;
    place += chunk_bytes;
  }
  end_ = round_up(place, kPage);
}

PayloadPool::Block* PayloadPool::add_deep(std::size_t bytes) {
  auto block = std::make_unique<Block>();
  block->place = end_;
  block->bytes = round_up(bytes, kPage);
  region_->grow(end_ + block->bytes);
  end_ += block->bytes;
  return deep_.emplace_back(std::move(block)).get();
}

}  // namespace bluefog::shm
