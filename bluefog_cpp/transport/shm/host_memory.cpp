#include "bluefog_cpp/transport/shm/host_memory.hpp"

#include <algorithm>
#include <exception>

#include "bluefog_cpp/transport/shm/region_layout.hpp"

namespace bluefog::shm {

std::unique_ptr<HostMemory> HostMemory::connect(Bootstrap& bootstrap,
                                                const std::vector<std::string>& host_ids,
                                                Deadline deadline) {
  std::unique_ptr<HostMemory> memory(new HostMemory());
  HostRegions regions = share_regions(
      bootstrap, host_ids, [] { return SharedRegion::create(kPage); }, deadline);
  const auto errors = gather_errors(bootstrap, regions.error, deadline);
  const int rank = bootstrap.rank();
  bool all_share = true;
  for (std::size_t r = 0; r < errors.size(); ++r) {
    all_share &= host_ids[r] != host_ids[static_cast<std::size_t>(rank)] || errors[r].empty();
  }
  if (all_share && !regions.peers.empty()) {
    memory->peers_ = std::move(regions.peers);
    memory->own_ = memory->peers_[regions.own].region;
  } else {
    memory->own_ = SharedRegion::create(kPage);
    memory->peers_.push_back({.rank = rank, .region = memory->own_});
  }
  for (const Peer& peer : memory->peers_) {
    memory->bases_[peer.rank] = peer.region->data();
  }
  return memory;
}

std::size_t HostMemory::allocate(std::size_t bytes) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), kPage);
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::ranges::find_if(free_, [bytes](const auto& block) { return block.second >= bytes; });
  if (found == free_.end()) {
    own_->grow(end_ + bytes);
    const std::size_t place = end_;
    end_ += bytes;
    used_[place] = bytes;
    return place;
  }
  const auto [place, size] = *found;
  free_.erase(found);
  if (size > bytes) {
    free_[place + bytes] = size - bytes;
  }
  used_[place] = bytes;
  return place;
}

void HostMemory::release(std::size_t place) {
  const std::scoped_lock lock(mutex_);
  const auto used = used_.find(place);
  if (used == used_.end()) {
    return;
  }
  auto block = free_.insert(used_.extract(used)).position;
  if (const auto next = std::next(block);
      next != free_.end() && block->first + block->second == next->first) {
    block->second += next->second;
    free_.erase(next);
  }
  if (block != free_.begin()) {
    const auto previous = std::prev(block);
    if (previous->first + previous->second == block->first) {
      previous->second += block->second;
      free_.erase(block);
    }
  }
}

}  // namespace bluefog::shm
