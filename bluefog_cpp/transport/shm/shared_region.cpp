#include "bluefog_cpp/transport/shm/shared_region.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {
namespace {

constexpr std::size_t kLeastSegment = std::size_t{1} << 20U;
/// The part of what is there that a new segment has at least, so that segments stay few.
constexpr std::size_t kShareToGrow = 8;

/// Faults now are cheaper than faults one by one in the first exchange; older kernels refuse.
void populate(std::byte* data, std::size_t bytes) noexcept {
  (void)::madvise(data, bytes, MADV_POPULATE_WRITE);
}

}  // namespace

std::uint64_t SharedRegion::take(std::size_t bytes) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), kPage);
  std::uint64_t place = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (end_ - next_ < bytes) {
      add_segment(bytes);
    }
    arena_->back(next_, bytes);
    place = std::exchange(next_, next_ + bytes);
  }
  populate(at(place, bytes), bytes);
  return place;
}

void SharedRegion::back(std::uint64_t place, std::size_t bytes) {
  arena_->back(place, bytes);
  populate(at(place, bytes), bytes);
}

void SharedRegion::add_segment(std::size_t bytes) {
  const std::uint32_t index = count();
  if (index == SegmentTable::kMost) {
    throw TransportError(
        fmt::format("shared memory: {} bytes are needed beyond {} segments of {} bytes in all",
                    bytes, index, total_));
  }
  const std::size_t roomy =
      std::max({bytes, kLeastSegment, round_up(total_ / kShareToGrow, kPage)});
  Mapping mapping;
  std::uint64_t begin = arena_->take(roomy);
  try {
    mapping = arena_->map(begin, roomy);
  } catch (const TransportError&) {  // no more than is needed, where addresses are short
    begin = arena_->take(bytes);
    mapping = arena_->map(begin, bytes);
  }
  const std::size_t size = mapping.bytes();
  View& view = views()[index];
  view.mapping = std::move(mapping);
  view.data.store(view.mapping.data(), std::memory_order_release);
  next_ = begin;
  end_ = begin + size;
  total_ += size;
  table_.segments[index] = {.begin = begin, .bytes = size};
  table_.count.store(index + 1, std::memory_order_release);
}

SharedRegion::Views& SharedRegion::views() {
  if (!owned_views_) {
    owned_views_ = std::make_unique<Views>();
    views_.store(owned_views_.get(), std::memory_order_release);
  }
  return *owned_views_;
}

// Another rank has written the number: never trusted to be in its range.
std::uint32_t SharedRegion::count() const noexcept {
  return std::min<std::uint32_t>(table_.count.load(std::memory_order_acquire), SegmentTable::kMost);
}

std::byte* SharedRegion::map_segment(std::uint32_t index) {
  const std::scoped_lock lock(mutex_);
  View& view = views()[index];
  if (view.data.load(std::memory_order_relaxed) == nullptr) {
    const auto [begin, bytes] = table_.segments[index];
    view.mapping = arena_->map(begin, bytes);
    view.data.store(view.mapping.data(), std::memory_order_release);
  }
  return view.mapping.data();
}

std::byte* SharedRegion::find(std::uint64_t place, std::size_t bytes) {
  const auto* const first = table_.segments.data();
  const auto* const after =
      std::upper_bound(first, first + count(), place,
                       [](std::uint64_t wanted, const SegmentTable::Segment& segment) {
                         return wanted < segment.begin;
                       });
  if (after == first) {
    return nullptr;
  }
  const SegmentTable::Segment& segment = *(after - 1);
  const std::uint64_t offset = place - segment.begin;
  if (offset > segment.bytes || bytes > segment.bytes - offset) {
    return nullptr;
  }
  const auto index = static_cast<std::uint32_t>(after - 1 - first);
  const Views* const views = views_.load(std::memory_order_acquire);
  std::byte* data =
      views != nullptr ? (*views)[index].data.load(std::memory_order_acquire) : nullptr;
  if (data == nullptr) {
    data = map_segment(index);
  }
  return data + offset;
}

std::byte* SharedRegion::at(std::uint64_t place, std::size_t bytes) {
  std::byte* const found = find(place, bytes);
  if (found == nullptr) {
    throw InternalError(fmt::format(
        "shared memory: {} bytes at {} lie outside of the rank's segments", bytes, place));
  }
  return found;
}

std::optional<std::uint64_t> SharedRegion::place_of(const void* data,
                                                    std::size_t bytes) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  const Views* const views = views_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; views != nullptr && i < count(); ++i) {
    const auto begin =
        reinterpret_cast<std::uintptr_t>((*views)[i].data.load(std::memory_order_acquire));
    const auto [first, size] = table_.segments[i];
    if (begin != 0 && at >= begin && at - begin <= size && bytes <= size - (at - begin)) {
      return first + (at - begin);
    }
  }
  return std::nullopt;
}

void SharedRegion::give_all_back() noexcept {
  for (std::uint32_t i = 0; i < count(); ++i) {
    arena_->give_back(table_.segments[i].begin, table_.segments[i].bytes);
  }
}

}  // namespace bluefog::shm
