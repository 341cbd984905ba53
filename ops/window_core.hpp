#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bluefog_cpp/transport/cuda/staged_buffers.hpp"
#include "bluefog_cpp/transport/one_sided/one_sided.hpp"
#include "ops/window.hpp"
#include "ops/window_memory.hpp"
#include "ops/window_record.hpp"

namespace bluefog::ops {

/// What stands behind a `Window`: this rank's part of it, and the ways to the other ranks'.
class WindowCore : public std::enable_shared_from_this<WindowCore> {
 public:
  WindowCore(Context& context, BufferView tensor, const NeighborPlan& plan,
             const WindowOptions& options);

  /// Collective.
  void open(WindowFill fill);
  /// Collective.
  void close();
  /// Without the other ranks: they are told when they come.
  void abandon() noexcept;

  /// Who holds the memory that a call works on while the device still uses it.
  enum class Caller : std::uint8_t {
    Waits,   ///< whoever made the call, in the order of a stream
    GoesOn,  ///< the call itself, which ends when the device has ended
  };
  /// @param staged of `stage` for `tensor`; null on the CPU.
  void store(const BufferView& tensor, StoreMode mode, const WindowPutOptions& options,
             StagedBuffers* staged, Caller caller);
  /// @param staged of `stage` for this rank's own tensor.
  void fetch(const WindowGetOptions& options, StagedBuffers* staged);
  void update(const WindowUpdateOptions& options);
  void fill(WindowFill fill, WindowStream stream);
  void publish(WindowStream stream);

  /// Of a tensor on a device what a call needs to work on it on the host: by now it is ordered
  /// behind what is on the tensor's stream. Null on the CPU.
  [[nodiscard]] std::shared_ptr<StagedBuffers> stage(std::string_view call,
                                                     const ConstBufferView& input,
                                                     const BufferView& output, StagingRules rules);
  /// As `stage`, for a put or an accumulate of `tensor`.
  [[nodiscard]] std::shared_ptr<StagedBuffers> stage_put(std::string_view call,
                                                         const BufferView& tensor,
                                                         const WindowPutOptions& options) {
    return stage(call, tensor, tensor, {.writes = options.self_weight != 1.0, .held = true});
  }
  /// As `stage`, for a call that only reads this rank's tensor.
  [[nodiscard]] std::shared_ptr<StagedBuffers> stage_own(std::string_view call,
                                                         WindowStream stream) {
    const BufferView own = tensor_on(stream);
    return stage(call, own, own, {.writes = false, .held = true});
  }
  /// Of a call that has ended: what comes later on the streams of its tensors comes after it.
  static void order_streams(StagedBuffers* staged);
  /// Starts `task`, a call on what was staged.
  [[nodiscard]] Work start(std::shared_ptr<StagedBuffers> staged, std::function<void()> task);
  /// This rank's tensor, on the stream that a call names.
  [[nodiscard]] BufferView tensor_on(WindowStream stream) const;
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
  void check_interrupt() const { hub_->check_interrupt(); }
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
    OwnValue own_value = OwnValue::InTensor;
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
  void run(std::string_view name, const Body& body) {
    WindowCall call = begin_call(name);
    try {
      body(call);
    } catch (const std::exception& e) {
      call.fail(e.what());
      throw;
    }
  }
  /// Runs `body` on the elements of a tensor as they are on the host: on `data`, or where it is on
  /// a device on what was staged of it, which then goes back as far as the call writes it.
  template <typename Body>
  void on_host(WindowCall& call, void* data, StagedBuffers* staged, const Body& body) {
    if (staged == nullptr) {
      body(static_cast<std::byte*>(data));
    } else {
      on_copy(call, *staged, std::ref(body));
    }
  }
  void on_copy(WindowCall& call, StagedBuffers& staged,
               const std::function<void(std::byte* data)>& body);
  /// Runs `function`, whose CudaError gets a place.
  template <typename Function>
  auto placed(std::string_view call, const Function& function);
  /// Waits until `asks`, which asks the device, says that the copy is done.
  void wait_for_copy(WindowCall& call, const std::function<bool()>& asks);
  void publish_value(WindowCall& call, const std::byte* value);
  /// Of a put, after it: the tensor's elements and the associated weight, which was `mass`.
  void scale(std::byte* data, double mass, double self_weight);
  [[nodiscard]] std::string where(std::string_view call) const;
  void take_in_time(shm::RobustLock& lock, const LockSite& site);
  /// Asks the server of `rank`.
  WindowServer::Answer ask(WindowCall& call, WindowWait::For what, int rank, WindowMessage request,
                           std::span<const std::byte> payload = {}, std::span<std::byte> room = {});
  /// This rank's part, as far as its arguments tell. @throws InvalidArgument, UnsupportedError.
  [[nodiscard]] WindowRecord describe() const;
  void allocate(WindowFill fill);
  [[nodiscard]] WindowMemory::Shape shape_of(std::size_t sources, OwnValue own_value) const;
  /// Whether its tensor is on a device: others find its value where it is published.
  [[nodiscard]] bool publishes() const { return tensor_.device.kind != DeviceKind::Cpu; }
  /// Collective. What all ranks say. @throws `refusal`, where this rank has one, and PeerFailure on
  ///   the others; MismatchError.
  [[nodiscard]] std::vector<WindowRecord> exchange(WindowRecord own, std::exception_ptr refusal);
  void connect(const std::vector<WindowRecord>& records);
  [[nodiscard]] const Part& part(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool counts_weight() const { return weight_state_ == AssociatedWeight::On; }
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
