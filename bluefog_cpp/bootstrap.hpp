#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

  /// A rank that does not go on.
  struct Lost {
    int rank = -1;      ///< its number before
    std::string cause;  ///< a clause for messages, the same on all ranks
  };
  /// The ranks that go on without the others, and with processes that have joined.
  struct Regrouped {
    std::shared_ptr<Bootstrap> bootstrap;  ///< of them alone, numbered anew in the same order
    std::vector<int> ranks;                ///< their numbers before, rising; empty on who joins
    std::vector<Lost> lost;                ///< the others, rising
    double time = 0;                       ///< when that was written down, in seconds since 1970
    int joined = 0;                        ///< the last so many of the new group are new
    /// Why one of those that are new will not come any more, after some looks; empty where there
    /// are none.
    std::function<std::optional<std::string>()> why_joined_gone{};
    /// Whether one of them has given this group up and begun to form another one.
    std::function<bool()> is_given_up;
    /// Collective over them: says whether this one has set up what it needs. @return whether all
    /// have, the same on all of them; else they call `regroup` again. @throws as `allgather`.
    std::function<bool(bool is_ready, Deadline deadline)> settle;
  };
  /// Why a rank will not come any more, as far as this one knows; nothing while it lives. Any
  /// thread.
  using WhyGone = std::function<std::optional<std::string>(int rank)>;

  /// Collective over the ranks that live: all of them find the same ones. Ranks that have not come
  /// when `deadline` passes are left out, and so are ranks that `why_gone` tells of on one that
  /// has come, unless they come all the same.
  /// @throws UnsupportedError where ranks cannot go on without one of them (MPI, or a store that
  ///   ended with a rank). @throws StateError on a rank that the others have left out.
  /// @throws TransportError where what they meet in fails.
  /// @param admits whether processes that wait to join are taken in: where all that have come say
  ///   so.
  ///
  /// On a process that waits to join: returns when the ranks have taken it in. `why_gone`,
  /// `deadline` and `admits` do not matter. @throws StateError where they do not, or have left.
  [[nodiscard]] virtual Regrouped regroup(WhyGone why_gone, Deadline deadline, bool admits);
  /// A rank that calls have waited for already, for `timeout` (zero: for ever): where all others have
  /// come, `regroup` waits for it until a tenth of that has passed from now, 1 s at least.
  void expect_late(int rank, std::chrono::nanoseconds timeout) {
    constexpr std::chrono::nanoseconds kLeast = std::chrono::seconds(1);
    late_ = {.rank = rank,
             .deadline = timeout.count() == 0 ? Deadline::never()
                                              : Deadline::after(std::max(timeout / 10, kLeast))};
  }
  /// Not any more: it has come.
  void forget_late() { late_ = {}; }
  /// That rank; −1: there is none.
  [[nodiscard]] int late_rank() const noexcept { return late_.rank; }
  /// Whether processes wait to join. Cost: some messages to what the ranks meet in.
  [[nodiscard]] virtual bool has_applicants() { return false; }
  /// Whether this process waits to join: it is alone until `regroup`.
  [[nodiscard]] virtual bool is_applicant() const noexcept { return false; }
  /// Why ranks cannot do so, a clause that is the same on all ranks; empty where they can.
  [[nodiscard]] virtual std::string_view regroup_obstacle() const noexcept {
    return "the way in which they have met cannot do without one of them";
  }

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
  /// A rank that is not waited for as long as others.
  struct Late {
    int rank = -1;      ///< -1: there is none
    Deadline deadline;  ///< until when it is waited for
  };
  /// What `expect_late` was given.
  [[nodiscard]] const Late& late() const noexcept { return late_; }
  /// What `set_look` was given.
  [[nodiscard]] const std::function<void()>& look() const noexcept { return look_; }

 private:
  std::function<void()> look_;
  Late late_{};
};

}  // namespace bluefog
