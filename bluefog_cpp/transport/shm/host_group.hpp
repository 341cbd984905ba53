#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/fork_guard.hpp"
#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/shm/host_arena.hpp"
#include "bluefog_cpp/transport/shm/region_layout.hpp"
#include "bluefog_cpp/transport/shm/shared_region.hpp"

namespace bluefog::shm {

/// The ranks of a host in one context, and their memory.
///
/// One block of the arena holds what every rank looks at, however many there are; the regions are
/// mapped at first use. The memory goes back to the system when the last rank has let go of its
/// group; a rank whose process has ended never does, so that the others can go on reading it.
class HostGroup {
 public:
  ~HostGroup();
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  /// A group of `rank` alone, with an arena of its own. @throws TransportError.
  static std::unique_ptr<HostGroup> alone(int rank);

  [[nodiscard]] std::size_t size() const noexcept { return body_->ranks.size(); }
  /// The ranks, rising.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return body_->ranks; }
  /// Index of this rank among them.
  [[nodiscard]] std::size_t own() const noexcept { return own_; }

  [[nodiscard]] SharedRegion& region(std::size_t index) const noexcept {
    return body_->regions[index];
  }
  [[nodiscard]] RankHead& head(std::size_t index) const noexcept;
  [[nodiscard]] Link& link(std::size_t writer, std::size_t reader) const noexcept;
  /// Makes a part of a link in this rank's region, and shows its reader the place.
  /// @throws TransportError when memory is short.
  template <typename Part>
  [[nodiscard]] Part* make(std::atomic<std::uint64_t>& place) const {
    return std::launder(reinterpret_cast<Part*>(make_part(place, sizeof(Part))));
  }
  /// The part of a link that `writer` has made; null where it has not yet.
  template <typename Part>
  [[nodiscard]] Part* find(std::size_t writer, const std::atomic<std::uint64_t>& place) const {
    const std::uint64_t there = place.load(std::memory_order_acquire);
    return there == 0
               ? nullptr
               : std::launder(reinterpret_cast<Part*>(region(writer).at(there, sizeof(Part))));
  }
  /// Whether the process of that rank has ended.
  [[nodiscard]] bool has_ended(std::size_t index) const noexcept;
  /// How many signs of life the process of that rank has given; zero where it gives none.
  [[nodiscard]] std::uint64_t signs_of_life(std::size_t index) const noexcept;

 private:
  friend class GroupFormation;

  /// The part that threads of a process have in common; between processes each rank has its own.
  struct Body {
    std::shared_ptr<HostArena> arena{};
    std::uint64_t place = 0;
    Mapping block{};
    GroupPlaces places{};
    std::vector<int> ranks{};
    std::deque<SharedRegion> regions{};
    bool is_in_process = false;

    [[nodiscard]] GroupHead& head() const noexcept;
  };

  HostGroup(std::shared_ptr<Body> body, std::size_t own) : body_(std::move(body)), own_(own) {}
  [[nodiscard]] std::byte* make_part(std::atomic<std::uint64_t>& place, std::size_t bytes) const;
  static std::uint64_t make_block(HostArena& arena, std::size_t local_size,
                                  const GroupShape& shape);
  static std::shared_ptr<Body> map_block(std::shared_ptr<HostArena> arena, std::uint64_t place,
                                         std::vector<int> ranks);

  std::shared_ptr<Body> body_;
  std::size_t own_;
  ForkGuard home_;
};

/// The result of forming a group.
struct FormedGroup {
  /// Null where this rank is alone on its host, or something went wrong.
  std::unique_ptr<HostGroup> group{};
  /// The errors by rank, empty where there was none.
  std::vector<std::string> errors{};
};

/// Collective over all ranks of `bootstrap`: those of each host form a group. A rank of the host
/// that fails leaves all of them without. Never throws for a reason of one rank alone: all take
/// part to the end.
/// @param host_ids every rank's host identity.
/// @param arena the arena of this host's ranks, all of which have it or none; gets it, or null
///   where a rank failed.
[[nodiscard]] FormedGroup form_group(Bootstrap& bootstrap, const std::vector<std::string>& host_ids,
                                     std::shared_ptr<HostArena>& arena, const GroupShape& shape,
                                     Deadline deadline);

}  // namespace bluefog::shm
