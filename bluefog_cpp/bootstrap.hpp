#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/deadline.hpp"

namespace bluefog {

/// The means by which ranks find each other: who they are, and exchange of small blobs.
///
/// The transports need no more to set up their own, faster paths. Calls are collective: every rank
/// makes them, in the same order. One thread at a time per object.
class Bootstrap {
 public:
  /// The bytes that one rank hands to the others.
  using Blob = std::vector<std::byte>;

  /// Largest blob of `allgather`, 16 MiB.
  static constexpr std::size_t kMaxBlobBytes = std::size_t{16} << 20;

  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  virtual ~Bootstrap() = default;

  /// This rank's number, 0 to size() - 1.
  [[nodiscard]] virtual int rank() const noexcept = 0;
  /// The number of ranks that meet here, at least 1; the same on all of them.
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// "mpi", "threads", "store", "single": for messages and `--verbose`.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// True if all ranks are threads of this process, so that addresses may be
  /// exchanged as blobs.
  [[nodiscard]] virtual bool in_process() const noexcept = 0;

  /// Why several threads of a process may not use its transports at the same time, the same text on
  /// all ranks; empty where they may.
  [[nodiscard]] virtual std::string_view concurrency_obstacle() const noexcept { return {}; }

  /// Every rank's blob, by rank. Lengths may differ.
  /// @throws InvalidArgument when `blob` is larger than `kMaxBlobBytes`, before anything moves.
  /// @throws TimeoutError when `deadline` passes, naming the ranks that are missing where known.
  /// @throws PeerFailure when a rank is known to be gone.
  [[nodiscard]] virtual std::vector<Blob> allgather(std::span<const std::byte> blob,
                                                    Deadline deadline) = 0;

  /// Returns when every rank has entered it. @throws as `allgather`.
  virtual void barrier(Deadline deadline) = 0;

  /// Collective. An independent bootstrap over the same ranks, whose calls may
  /// run concurrently with this one's.
  [[nodiscard]] virtual std::shared_ptr<Bootstrap> duplicate(Deadline deadline) = 0;

  /// From now on `look` is called about every 50 ms while a call waits for other ranks; its
  /// exception ends that call. Empty: no longer. Ranks that never come are else seen by deadlines
  /// alone.
  void set_look(std::function<void()> look) { look_ = std::move(look); }

  /// Calls `leave` before the shutdown of what this bootstrap stands on, where that waits for all
  /// ranks (MPI_Finalize), as long as the caller keeps the result.
  [[nodiscard]] virtual std::shared_ptr<void> before_shutdown(std::function<void()> /*leave*/) {
    return nullptr;
  }

  /// Notes that another rank's process ended without leaving: it takes no part in the shutdown.
  virtual void note_process_failure() noexcept {}
  /// Notes that another rank is late: the shutdown waits for it at most `longest` more.
  virtual void limit_shutdown(std::chrono::nanoseconds /*longest*/) noexcept {}

 protected:
  /// What `set_look` was given.
  [[nodiscard]] const std::function<void()>& look() const noexcept { return look_; }

 private:
  std::function<void()> look_;
};

}  // namespace bluefog
