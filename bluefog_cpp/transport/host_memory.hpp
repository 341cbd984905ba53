#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/base/fork_guard.hpp"
#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/shm/host_group.hpp"

namespace bluefog::shm {

/// Memory of this rank that the other ranks of its host read and write, and theirs.
///
/// Each rank has one region, of which the others know; blocks of it are given out without asking
/// them. Thread-safe.
class HostMemory {
 public:
  /// Collective over all ranks of `bootstrap`. Each rank is alone where the ranks of a host cannot
  /// share memory. @param host_ids every rank's host identity. @param arena the memory that the
  /// ranks of this host share, on all of them; null where they have none yet.
  static std::unique_ptr<HostMemory> connect(Bootstrap& bootstrap,
                                             const std::vector<std::string>& host_ids,
                                             std::shared_ptr<HostArena> arena, Deadline deadline);

  /// The memory of a group, beside its messages.
  static std::shared_ptr<HostMemory> of(std::shared_ptr<HostGroup> group);

  /// True if this rank maps `rank`'s memory, and the other way round.
  [[nodiscard]] bool reaches(int rank) const noexcept { return index_of_.contains(rank); }
  /// The address of a block at `place`, which `rank` has taken, as this process sees it.
  /// @throws TransportError when addresses are short; InternalError where nobody has taken it.
  [[nodiscard]] std::byte* at(int rank, std::uint64_t place, std::size_t bytes) const {
    return group_->region(index_of_.at(rank)).at(place, bytes);
  }
  /// The place of the first block that `rank` has taken.
  [[nodiscard]] std::uint64_t first_place_of(int rank) const {
    return group_->region(index_of_.at(rank)).first_place();
  }

  /// Takes `bytes` of this rank's region, on a page, not zeroed. @return their place.
  /// @throws TransportError when memory is short; StateError in a fork of the process, which has a
  ///   copy of the book on the same memory: there `release` and `retire` do nothing.
  [[nodiscard]] std::uint64_t allocate(std::size_t bytes);
  /// Gives a block back, once no rank uses it any more, and its memory to the system.
  void release(std::uint64_t place);
  /// Zeroed memory of `allocate`: released with the last copy of the pointer, which keeps `memory`.
  [[nodiscard]] static std::shared_ptr<std::byte> allocate_zeros(
      const std::shared_ptr<HostMemory>& memory, std::size_t bytes);

  /// The place of `bytes` bytes at `data`; nothing if they do not lie in this rank's region.
  [[nodiscard]] std::optional<std::uint64_t> place_of(const void* data,
                                                      std::size_t bytes) const noexcept {
    return own().place_of(data, bytes);
  }
  /// Withdraws the addresses of the block that `place` lies in, to which another rank may still
  /// write: they are not given out again.
  void retire(std::uint64_t place);

  /// Memory of this rank, on a page, where it writes down what it is about to write into others'
  /// memory: `bytes` or more, the same block until somebody needs a larger one, zeroed when new.
  /// Not for two threads at once.
  /// @throws TransportError, StateError as `allocate`.
  [[nodiscard]] std::byte* log(std::size_t bytes);

 private:
  explicit HostMemory(std::shared_ptr<HostGroup> group);
  [[nodiscard]] SharedRegion& own() const noexcept { return group_->region(group_->own()); }

  std::shared_ptr<HostGroup> group_;
  std::map<int, std::size_t> index_of_;

  ForkGuard home_;
  std::mutex mutex_;
  /// Blocks by place: their bytes. Blocks of two segments never adjoin.
  std::map<std::uint64_t, std::size_t> used_;
  std::map<std::uint64_t, std::size_t> free_;
  /// The retired blocks that are not released yet.
  std::map<std::uint64_t, std::size_t> retired_;
  std::optional<std::uint64_t> log_place_{};
  std::size_t log_bytes_ = 0;
};

}  // namespace bluefog::shm
