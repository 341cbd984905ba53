#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bluefog_cpp/transport/one_sided/one_sided.hpp"
#include "ops/window.hpp"
#include "ops/window_memory.hpp"
#include "ops/window_record.hpp"

namespace bluefog::ops {

/// What stands behind a `Window`: this rank's part of it, and the ways to the other ranks'.
class WindowCore {
 public:
  WindowCore(Context& context, BufferView tensor, const NeighborPlan& plan,
             const WindowOptions& options);

  /// Collective.
  void open(WindowFill fill);
  /// Collective.
  void close();
  /// Without the other ranks: they are told when they come.
  void abandon() noexcept;

  void store(const BufferView& tensor, StoreMode mode, const WindowPutOptions& options);
  void fetch(const WindowGetOptions& options);
  void update(const WindowUpdateOptions& options);
  void fill(WindowFill fill);
  /// A call, for the timeline and the flight record.
  [[nodiscard]] WindowCall begin_call(std::string_view name);
  /// @return what `release_mutex` has to be told.
  [[nodiscard]] std::uint64_t take_mutex(int rank, WindowCall& call);
  void release_mutex(int rank, std::uint64_t ticket) noexcept;

  /// @throws InvalidArgument, before anything moves.
  void check_tensor(const BufferView& tensor, std::string_view call) const;
  void check_some_of(const std::vector<WeightedRank>& some, const std::vector<WeightedRank>& all,
                     std::string_view call, std::string_view role) const;
  /// The output is the tensor itself or does not overlap it.
  void check_apart(const BufferView& output, std::string_view call) const;
  void check_weight(double weight, std::string_view call) const;
  void check_lockable(int rank) const;
  /// @throws StateError where this thread holds the mutex of one of `ranks`: a call that takes it
  ///   would wait for itself.
  void check_not_held(std::span<const WeightedRank> ranks, std::string_view call);
  void check_not_held(int rank, std::string_view call);
  /// @throws StateError after `close`.
  void check_open(std::string_view call) const;

  [[nodiscard]] const WindowMemory& own() const { return *own_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const BufferView& tensor() const noexcept { return tensor_; }
  [[nodiscard]] const NeighborPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] TaskQueue& tasks() noexcept { return hub_->tasks(); }
  void set_associated_weight(AssociatedWeight state) noexcept { weight_state_ = state; }

 private:
  void release_own_mutexes();
  /// Why the window cannot be freed now, or nothing.
  [[nodiscard]] std::string obstacle_to_freeing();
  /// A rank's part of the window, as far as this rank needs it.
  struct Part {
    /// Where its memory is shared with this rank.
    std::optional<WindowMemory> memory{};
    std::uint64_t address = 0;
    /// This rank's place among its sources.
    std::size_t own_index = 0;
  };

  /// Where a lock is taken, for messages.
  struct LockSite {
    /// Null for the server's thread.
    WindowCall* call = nullptr;
    WindowWait::For what = WindowWait::For::Buffer;
    /// Whose memory the lock lies in.
    int rank = 0;
  };

  /// Runs `body` as a call that the timeline and the flight record show.
  template <typename Body>
  void run(std::string_view name, const Body& body);
  [[nodiscard]] std::string where(std::string_view call) const;
  void take_in_time(shm::RobustLock& lock, const LockSite& site);
  /// Asks the server of `rank`.
  WindowServer::Answer ask(WindowCall& call, WindowWait::For what, int rank, WindowMessage request,
                           std::span<const std::byte> payload = {}, std::span<std::byte> room = {});
  /// This rank's part, as far as its arguments tell. @throws InvalidArgument, UnsupportedError.
  [[nodiscard]] WindowRecord describe() const;
  void allocate(WindowFill fill);
  /// Collective. What all ranks say. @throws `refusal`, where this rank has one, and PeerFailure on
  ///   the others; MismatchError.
  [[nodiscard]] std::vector<WindowRecord> exchange(WindowRecord own, std::exception_ptr refusal);
  void connect(const std::vector<WindowRecord>& records);
  [[nodiscard]] const Part& part(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool counts_weight() const { return weight_state_ == AssociatedWeight::On; }
  [[nodiscard]] const std::byte* value_for(WindowFill fill) const noexcept;
  void store_at(WindowCall& call, int rank, StoreMode mode, const WeightedBytes& value);
  void fetch_from(WindowCall& call, const WeightedRank& source);
  void read_from(const WindowCall& call, int rank, std::byte* to);
  [[nodiscard]] const WindowMemory* reachable(int rank, std::string_view call);

  std::shared_ptr<Context> context_;
  OneSided* hub_ = nullptr;
  BufferView tensor_;
  NeighborPlan plan_;
  std::string name_;
  Envelope envelope_;
  std::atomic<AssociatedWeight> weight_state_;
  std::uint32_t number_ = 0;
  std::vector<std::int32_t> sources_;
  std::optional<std::size_t> place_;
  std::optional<WindowMemory> own_;
  std::vector<Part> parts_;
  std::atomic<bool> is_closed_{false};
  /// A mutex of this window that this rank holds.
  struct HeldMutex {
    int rank = 0;
    std::uint64_t ticket = 0;
    std::thread::id thread{};
  };
  std::mutex held_mutex_;
  std::vector<HeldMutex> held_;
  /// Peers know that this rank's part is gone; its memory may be another window's by now.
  std::atomic<bool> has_left_{false};
};

/// Holds the mutex of one rank of a window.
class MutexHolder {
 public:
  MutexHolder(WindowCore& core, int rank, WindowCall& call)
      : core_(core), rank_(rank), ticket_(core_.take_mutex(rank_, call)) {}
  MutexHolder(const MutexHolder&) = delete;
  MutexHolder& operator=(const MutexHolder&) = delete;
  ~MutexHolder() { core_.release_mutex(rank_, ticket_); }

 private:
  WindowCore& core_;
  int rank_;
  std::uint64_t ticket_;
};

}  // namespace bluefog::ops
