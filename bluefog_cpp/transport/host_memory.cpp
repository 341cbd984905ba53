#include "bluefog_cpp/transport/host_memory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {

std::unique_ptr<HostMemory> HostMemory::connect(Bootstrap& bootstrap,
                                                const std::vector<std::string>& host_ids,
                                                std::shared_ptr<HostArena> arena,
                                                Deadline deadline) {
  std::shared_ptr<HostGroup> group =
      form_group(bootstrap, host_ids, arena, GroupShape{}, deadline).group;
  if (!group) {
    group = HostGroup::alone(bootstrap.rank());
  }
  return std::unique_ptr<HostMemory>(new HostMemory(std::move(group)));
}

std::shared_ptr<HostMemory> HostMemory::of(std::shared_ptr<HostGroup> group) {
  return std::shared_ptr<HostMemory>(new HostMemory(std::move(group)));
}

HostMemory::HostMemory(std::shared_ptr<HostGroup> group) : group_(std::move(group)) {
  for (std::size_t i = 0; i < group_->size(); ++i) {
    index_of_[group_->ranks()[i]] = i;
  }
}

std::uint64_t HostMemory::allocate(std::size_t bytes) {
  if (home_.is_forked()) {
    throw StateError("a fork of the process takes none of the memory that its parent shares");
  }
  bytes = round_up(std::max<std::size_t>(bytes, 1), kPage);
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::ranges::find_if(free_, [bytes](const auto& block) { return block.second >= bytes; });
  if (found == free_.end()) {
    const std::uint64_t place = own().take(bytes);
    used_[place] = bytes;
    return place;
  }
  const auto [place, size] = *found;
  own().back(place, bytes);
  free_.erase(found);
  if (size > bytes) {
    free_[place + bytes] = size - bytes;
  }
  used_[place] = bytes;
  return place;
}

void HostMemory::release(std::uint64_t place) {
  if (home_.is_forked()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (const auto retired = retired_.find(place); retired != retired_.end()) {
    own().give_back(place, retired->second);
    retired_.erase(retired);
  }
  const auto used = used_.find(place);
  if (used == used_.end()) {
    return;
  }
  own().give_back(place, used->second);
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
  const std::uint64_t place = memory->allocate(bytes);
  std::byte* const data = memory->own().at(place, bytes);
  std::memset(data, 0, bytes);
  return {data, [memory, place](std::byte*) { memory->release(place); }};
}

void HostMemory::retire(std::uint64_t place) {
  if (home_.is_forked()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  const auto next = used_.upper_bound(place);
  if (next == used_.begin()) {
    return;
  }
  // Not that of another block, where the block of this place is retired already.
  const auto block = std::prev(next);
  if (place < block->first + block->second) {
    retired_.insert(used_.extract(block));
  }
}

std::byte* HostMemory::log(std::size_t bytes) {
  if (!log_place_ || log_bytes_ < bytes) {
    const std::uint64_t place = allocate(bytes);
    std::memset(own().at(place, bytes), 0, bytes);
    if (log_place_) {
      release(*log_place_);
    }
    log_place_ = place;
    log_bytes_ = bytes;
  }
  return own().at(*log_place_, log_bytes_);
}

}  // namespace bluefog::shm
