#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/base/fork_guard.hpp"
#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/shm/share_regions.hpp"

namespace bluefog::shm {

/// Memory of this rank that the other ranks of its host read and write, and theirs.
///
/// Each rank has one region, which it shows to the others once; blocks of it are given out
/// afterwards without asking them. Thread-safe.
class HostMemory {
 public:
  /// Collective over all ranks of `bootstrap`. Each rank is alone where the ranks of a host cannot
  /// share memory; `errors` then says why. @param host_ids every rank's host identity.
  static std::unique_ptr<HostMemory> connect(Bootstrap& bootstrap,
                                             const std::vector<std::string>& host_ids,
                                             Deadline deadline);

  /// Uses the upper halves of regions that the ranks of a host have shown each other already, and
  /// whose lower halves are somebody else's. @param own this rank's index among `peers`.
  static std::shared_ptr<HostMemory> above(const std::vector<Peer>& peers, std::size_t own);

  /// True if this rank maps `rank`'s memory, and the other way round.
  [[nodiscard]] bool reaches(int rank) const noexcept { return bases_.contains(rank); }
  /// Start of `rank`'s region, as this process sees it.
  [[nodiscard]] std::byte* base_of(int rank) const { return bases_.at(rank); }

  /// Takes `bytes` of this rank's region, on a page, not zeroed. @return their offset in it.
  /// @throws TransportError when memory is short; StateError in a fork of the process, which has a
  ///   copy of the book on the same memory: there `release` and `retire` do nothing.
  [[nodiscard]] std::size_t allocate(std::size_t bytes);
  /// Gives a block back, once no rank uses it any more, and its memory to the system.
  void release(std::size_t place);
  /// Zeroed memory of `allocate`: released with the last copy of the pointer, which keeps `memory`.
  [[nodiscard]] static std::shared_ptr<std::byte> allocate_zeros(
      const std::shared_ptr<HostMemory>& memory, std::size_t bytes);

  /// The offset of `bytes` bytes at `data` in this rank's region; nothing if they do not lie in it.
  [[nodiscard]] std::optional<std::size_t> place_of(const void* data,
                                                    std::size_t bytes) const noexcept;
  /// The number of bytes of every region that this process maps.
  [[nodiscard]] std::size_t reach() const noexcept { return reach_; }
  /// Withdraws the addresses of the block that `place` lies in, to which another rank may still
  /// write: they are not given out again.
  void retire(std::size_t place);

 private:
  HostMemory() = default;
  void note_regions();

  std::shared_ptr<SharedRegion> own_;
  std::vector<Peer> peers_;
  std::map<int, std::byte*> bases_;
  std::size_t reach_ = 0;

  ForkGuard home_;
  std::mutex mutex_;
  std::size_t end_ = 0;
  std::map<std::size_t, std::size_t> used_;
  std::map<std::size_t, std::size_t> free_;
  /// The retired blocks that are not released yet.
  std::map<std::size_t, std::size_t> retired_;
};

}  // namespace bluefog::shm
