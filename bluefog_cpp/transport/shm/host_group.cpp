#include "bluefog_cpp/transport/shm/host_group.hpp"

#include <new>
#include <utility>

namespace bluefog::shm {

GroupHead& HostGroup::Body::head() const noexcept {
  return *std::launder(reinterpret_cast<GroupHead*>(block.data()));
}

HostGroup::~HostGroup() {
  if (home_.is_forked()) {
    return;  // the parent's
  }
  const auto local_size = static_cast<std::uint32_t>(size());
  if (body_->head().left.fetch_add(1, std::memory_order_acq_rel) + 1 == local_size) {
    for (SharedRegion& region : body_->regions) {
      region.give_all_back();
    }
    body_->arena->give_back(body_->place, body_->block.bytes());
  }
}

std::unique_ptr<HostGroup> HostGroup::alone(int rank) {
  auto arena = HostArena::create();
  const std::uint64_t place = make_block(*arena, 1, {});
  auto body = map_block(std::move(arena), place, {rank});
  body->is_in_process = true;
  return std::unique_ptr<HostGroup>(new HostGroup(std::move(body), 0));
}

std::uint64_t HostGroup::make_block(HostArena& arena, std::size_t local_size,
                                    const GroupShape& shape) {
  const std::size_t bytes = GroupPlaces::of(local_size).end;
  const std::uint64_t place = arena.take(bytes);
  arena.back(place, bytes);
  const Mapping block = arena.map(place, sizeof(GroupHead));
  auto* const head = new (block.data()) GroupHead{};
  head->version = kLayoutVersion;
  head->local_size = static_cast<std::uint32_t>(local_size);
  head->shape = shape;
  return place;
}

std::shared_ptr<HostGroup::Body> HostGroup::map_block(std::shared_ptr<HostArena> arena,
                                                      std::uint64_t place, std::vector<int> ranks) {
  auto body = std::make_shared<Body>();
  body->places = GroupPlaces::of(ranks.size());
  body->place = place;
  body->block = arena->map(place, body->places.end);
  auto* const tables = reinterpret_cast<SegmentTable*>(body->block.data() + body->places.tables);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    body->regions.emplace_back(arena, tables[i]);
  }
  body->ranks = std::move(ranks);
  body->arena = std::move(arena);
  return body;
}

RankHead& HostGroup::head(std::size_t index) const noexcept {
  return std::launder(
      reinterpret_cast<RankHead*>(body_->block.data() + body_->places.heads))[index];
}

Link& HostGroup::link(std::size_t writer, std::size_t reader) const noexcept {
  return std::launder(
      reinterpret_cast<Link*>(body_->block.data() + body_->places.links))[writer * size() + reader];
}

std::byte* HostGroup::make_part(std::atomic<std::uint64_t>& place, std::size_t bytes) const {
  SharedRegion& own = region(own_);
  const std::uint64_t taken = own.take(bytes);
  std::byte* const part = own.at(taken, bytes);
  place.store(taken, std::memory_order_release);
  return part;
}

bool HostGroup::has_ended(std::size_t index) const noexcept {
  return !body_->is_in_process && index != own_ && !body_->arena->is_alive(body_->ranks[index]);
}

std::uint64_t HostGroup::signs_of_life(std::size_t index) const noexcept {
  return body_->is_in_process ? 0 : body_->arena->signs_of_life(body_->ranks[index]);
}

}  // namespace bluefog::shm
