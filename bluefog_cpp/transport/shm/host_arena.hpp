#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/base/fork_guard.hpp"
#include "bluefog_cpp/transport/life_keeper.hpp"
#include "bluefog_cpp/transport/life_lock.hpp"

namespace bluefog::shm {

/// Addresses behind which shared memory lies. Movable; null when moved from.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct Life;

/// The memory without a name that all ranks of a host and all of their contexts share: one
/// descriptor of a process, whatever the number of ranks and contexts.
///
/// A place is an offset in it, the same for all ranks. Places are taken and never given out again;
/// memory lies behind those that were backed, and a process has addresses for what it maps. The
/// memory cannot be made smaller, so that no process loses what it has mapped. Thread-safe.
class HostArena {
 public:
  /// A new arena, which other processes do not know of. @param ranks the number of ranks of all
  /// hosts, at least. @throws TransportError.
  static std::shared_ptr<HostArena> create(int ranks = 64);
  /// The arena that another process has made. @throws TransportError where `fd` is none.
  static std::shared_ptr<HostArena> adopt(UniqueFd fd);

  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena();

  /// Takes `bytes` places, on a page, which no other ones adjoin. Nothing lies behind them yet.
  [[nodiscard]] std::uint64_t take(std::size_t bytes) noexcept;
  /// Puts zeroed memory behind places where there is none, and leaves the rest as it is.
  /// @throws TransportError when memory is short.
  void back(std::uint64_t place, std::size_t bytes);
  /// Gives the memory behind these places back to the system; a write puts new memory there.
  void give_back(std::uint64_t place, std::size_t bytes) noexcept;
  /// @throws TransportError when addresses are short.
  [[nodiscard]] Mapping map(std::uint64_t place, std::size_t bytes) const;

  /// Marks once that the process of `rank`, this one, lives, until it ends: whatever its children
  /// do. @param heartbeat gives a sign of life four times in it; zero: none. @throws TransportError.
  void mark_alive(int rank, std::chrono::nanoseconds heartbeat = {});
  /// How many signs of life the process of `rank` has given; zero where it gives none.
  [[nodiscard]] std::uint64_t signs_of_life(int rank) const noexcept;
  /// Whether another process has marked that `rank` lives, and is not about to end. One that is
  /// may still write for a moment.
  [[nodiscard]] bool is_alive(int rank) const noexcept;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  struct Head;

  HostArena(UniqueFd fd, Mapping head) : fd_(std::move(fd)), head_mapping_(std::move(head)) {}
  [[nodiscard]] Head& head() const noexcept;
  [[nodiscard]] Life& life_of(int rank) const noexcept;

  UniqueFd fd_;
  Mapping head_mapping_;
  Mapping lives_mapping_{};
  ForkGuard home_;
  /// Holds the life lock of this process; null before `mark_alive`.
  std::unique_ptr<LifeKeeper> keeper_{};
  LifeLock* life_ = nullptr;
};

}  // namespace bluefog::shm
