#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "bluefog_cpp/transport/shm/host_arena.hpp"

namespace bluefog::shm {

/// The places of the arena that make up a region, rising: written by its owner.
struct SegmentTable {
  struct Segment {
    std::uint64_t begin;
    std::uint64_t bytes;
  };
  /// Each segment is at least an eighth of those before it: this many hold any memory there is.
  static constexpr std::size_t kMost = 256;

  std::atomic<std::uint32_t> count;
  std::array<Segment, kMost> segments;
};

/// The memory of one rank in one context, which the ranks of its host map.
///
/// It grows by segments, each of which stays where it is: pointers stay valid, and a process has
/// addresses for what is in use, and for an eighth or a MiB more to grow. Other ranks map a
/// segment when they first look at a place in it. Thread-safe; the owner alone takes and backs.
class SharedRegion {
 public:
  /// @param table where the ranks of the host find the segments; outlives the region.
  SharedRegion(std::shared_ptr<HostArena> arena, SegmentTable& table) noexcept
      : arena_(std::move(arena)), table_(table) {}

  /// Takes `bytes`, on a page, with zeroed memory behind them. The owner's.
  /// @throws TransportError when memory or addresses are short.
  [[nodiscard]] std::uint64_t take(std::size_t bytes);
  /// Puts memory behind places that were given back. @throws TransportError.
  void back(std::uint64_t place, std::size_t bytes);
  /// Gives the memory behind these places back to the system, not the places.
  void give_back(std::uint64_t place, std::size_t bytes) noexcept {
    arena_->give_back(place, bytes);
  }
  /// Gives all memory back, when no rank uses it any more.
  void give_all_back() noexcept;

  /// The address of `bytes` bytes at `place`; null where they do not lie in this region.
  /// @throws TransportError when addresses are short.
  [[nodiscard]] std::byte* find(std::uint64_t place, std::size_t bytes);
  /// Like `find`. @throws InternalError in place of null.
  [[nodiscard]] std::byte* at(std::uint64_t place, std::size_t bytes);
  /// The place of `bytes` bytes at `data`; nothing if they do not lie in what is mapped here.
  [[nodiscard]] std::optional<std::uint64_t> place_of(const void* data,
                                                      std::size_t bytes) const noexcept;
  /// The place that was taken first.
  [[nodiscard]] std::uint64_t first_place() const noexcept { return table_.segments[0].begin; }

 private:
  /// A segment in this process, with the same index as in the table.
  struct View {
    /// Null while it is not mapped.
    std::atomic<std::byte*> data{nullptr};
    Mapping mapping{};
  };
  using Views = std::array<View, SegmentTable::kMost>;

  [[nodiscard]] std::uint32_t count() const noexcept;
  /// Maps a segment, if nobody has yet. @return its address.
  std::byte* map_segment(std::uint32_t index);
  void add_segment(std::size_t bytes);
  /// Makes the views, where there are none. Under the mutex.
  Views& views();

  std::shared_ptr<HostArena> arena_;
  SegmentTable& table_;

  std::mutex mutex_;
  /// Made with the first view.
  std::unique_ptr<Views> owned_views_;
  std::atomic<Views*> views_{nullptr};
  /// The owner's: the first place of the last segment that is not taken, and the segment's end.
  std::uint64_t next_ = 0;
  std::uint64_t end_ = 0;
  /// Bytes of all segments.
  std::size_t total_ = 0;
};

}  // namespace bluefog::shm
