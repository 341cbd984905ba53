#include "bluefog_cpp/transport/host_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>

#include "bluefog_cpp/error.hpp"
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
  memory->note_regions();
  return memory;
}

std::shared_ptr<HostMemory> HostMemory::above(const std::vector<Peer>& peers, std::size_t own) {
  std::shared_ptr<HostMemory> memory(new HostMemory());
  for (const Peer& peer : peers) {
    memory->peers_.push_back({.rank = peer.rank, .region = peer.region});
  }
  memory->own_ = peers[own].region;
  memory->end_ = memory->own_->reserved() / 2;
  memory->note_regions();
  return memory;
}

void HostMemory::note_regions() {
  reach_ = own_->reserved();
  for (const Peer& peer : peers_) {
    bases_[peer.rank] = peer.region->data();
    reach_ = std::min(reach_, peer.region->reserved());
  }
}

std::size_t HostMemory::allocate(std::size_t bytes) {
  if (home_.is_forked()) {
    throw StateError("a fork of the process takes none of the memory that its parent shares");
  }
  bytes = round_up(std::max<std::size_t>(bytes, 1), kPage);
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::ranges::find_if(free_, [bytes](const auto& block) { return block.second >= bytes; });
  if (found == free_.end()) {
    own_->back(end_, bytes);
    const std::size_t place = end_;
    end_ += bytes;
    used_[place] = bytes;
    return place;
  }
  const auto [place, size] = *found;
  own_->back(place, bytes);
  free_.erase(found);
  if (size > bytes) {
    free_[place + bytes] = size - bytes;
  }
  used_[place] = bytes;
  return place;
}

void HostMemory::release(std::size_t place) {
  if (home_.is_forked()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (const auto retired = retired_.find(place); retired != retired_.end()) {
    own_->give_back(place, retired->second);
    retired_.erase(retired);
  }
  const auto used = used_.find(place);
  if (used == used_.end()) {
    return;
  }
  own_->give_back(place, used->second);
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

std::shared_ptr<std::byte> HostMemory::allocate_zeros(const std::shared_ptr<HostMemory>& memory,
                                                      std::size_t bytes) {
  const std::size_t place = memory->allocate(bytes);
  std::byte* const data = memory->own_->data() + place;
  std::memset(data, 0, bytes);
  return {data, [memory, place](std::byte*) { memory->release(place); }};
}

std::optional<std::size_t> HostMemory::place_of(const void* data,
                                                std::size_t bytes) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(own_->data());
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  if (at < begin || at - begin > own_->reserved() || bytes > own_->reserved() - (at - begin)) {
    return std::nullopt;
  }
  return at - begin;
}

void HostMemory::retire(std::size_t place) {
  if (home_.is_forked()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  const auto next = used_.upper_bound(place);
  if (next != used_.begin()) {
    retired_.insert(used_.extract(std::prev(next)));
  }
}

}  // namespace bluefog::shm
