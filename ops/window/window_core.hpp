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
#include <utility>
#include <vector>

#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/one_sided/one_sided.hpp"
#include "ops/calls/device_tensors.hpp"
#include "ops/window.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_memory.hpp"
#include "ops/window/window_record.hpp"

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
  /// @param tensors of `note` for `tensor`; null on the CPU.
  void store(const BufferView& tensor, StoreMode mode, const WindowPutOptions& options,
             DeviceTensors* tensors, Caller caller);
  /// @param tensors of `note` for this rank's own tensor.
  void fetch(const WindowGetOptions& options, DeviceTensors* tensors);
  void update(const WindowUpdateOptions& options);
  void fill(WindowFill fill, WindowStream stream);
  void publish(WindowStream stream);

  /// Of a tensor on a device what a call needs to work on it: by now it is ordered behind what is on
  /// the tensor's stream. Null on the CPU.
  [[nodiscard]] std::shared_ptr<DeviceTensors> note(std::string_view call,
                                                    const ConstBufferView& input,
                                                    const BufferView& output, StagingRules rules);
  /// As `note`, for a put or an accumulate of `tensor`.
  [[nodiscard]] std::shared_ptr<DeviceTensors> note_put(std::string_view call,
                                                        const BufferView& tensor,
                                                        const WindowPutOptions& options) {
    return note(call, tensor, tensor, {.writes = options.self_weight != 1.0, .held = true});
  }
  /// As `note`, for a call that only reads this rank's tensor.
  [[nodiscard]] std::shared_ptr<DeviceTensors> note_own(std::string_view call,
                                                        WindowStream stream) {
    const BufferView own = tensor_on(stream);
    return note(call, own, own, {.writes = false, .held = true});
  }
  /// Of a call that has ended: what comes later on the streams of its tensors comes after it.
  static void order_streams(DeviceTensors* tensors);
  /// Runs `body`, a whole call; where it fails the streams of its tensors are ordered.
  template <typename Body>
  static void ordered_if_it_fails(DeviceTensors* tensors, Body&& body) {
    try {
      std::forward<Body>(body)();
    } catch (...) {
      const auto also = problem_of([tensors] { order_streams(tensors); });
      throw;
    }
  }
  /// As above, and also where it does not.
  template <typename Body>
  static void in_order(DeviceTensors* tensors, Body&& body) {
    ordered_if_it_fails(tensors, std::forward<Body>(body));
    order_streams(tensors);
  }
  /// Starts `task`, a call on what was noted.
  [[nodiscard]] Work start(std::shared_ptr<DeviceTensors> tensors, std::function<void()> task);
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
  [[nodiscard]] std::string where(std::string_view call) const;
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
  /// Runs `body` on the elements of a tensor where the window's buffers are: on `data`, or on what
  /// was staged of it on the host, which then goes back as far as the call writes it. `body` also
  /// gets what forms values there.
  template <typename Body>
  void on_values(WindowCall& call, void* data, DeviceTensors* tensors, const Body& body) {
    if (peers_ != nullptr) {
      on_peers(call, tensors, static_cast<std::byte*>(data), std::ref(body));
    } else if (tensors == nullptr) {
      body(static_cast<std::byte*>(data), nullptr);
    } else {
      on_copy(call, *tensors->staged(), std::ref(body));
    }
  }
  void on_copy(WindowCall& call, StagedBuffers& staged,
               const std::function<void(std::byte*, WindowValues*)>& body);
  /// @param tensors null where the call concerns buffers alone.
  void on_peers(WindowCall& call, DeviceTensors* tensors, std::byte* data,
                const std::function<void(std::byte*, WindowValues*)>& body);
  class PeerValues;
  /// Runs `function`, whose CudaError gets a place.
  template <typename Function>
  auto placed(std::string_view call, const Function& function) const {
    try {
      return function();
    } catch (const CudaError& error) {
      throw CudaError(error.code(), place_of(call, error));
    }
  }
  [[nodiscard]] std::string place_of(std::string_view call, const std::exception& error) const;
  /// What a call waits for at its device.
  enum class DeviceWait : std::uint8_t {
    Copy,    ///< of a tensor, between it and the host
    Stream,  ///< what was on a tensor's stream before the call
    Work,    ///< of the call, on buffers
  };
  /// Waits until `asks`, which asks the device, says that it is done.
  void wait_for_device(WindowCall& call, DeviceWait what, const std::function<bool()>& asks);
  void publish_value(WindowCall& call, const std::byte* value, WindowValues* values);
  /// Of a put, after it: the tensor's elements and the associated weight, which was `mass`.
  void scale(std::byte* data, double mass, double self_weight, WindowValues* values);
  void take_in_time(shm::RobustLock& lock, const LockSite& site);
  /// Asks the server of `rank`.
  WindowServer::Answer ask(WindowCall& call, WindowWait::For what, int rank, WindowMessage request,
                           std::span<const std::byte> payload = {}, std::span<std::byte> room = {});
  /// This rank's part, as far as its arguments tell. @throws InvalidArgument, UnsupportedError.
  [[nodiscard]] WindowRecord describe() const;
  void allocate(WindowFill fill);
  /// What `step` throws, as `create` says it to all ranks, or null.
  [[nodiscard]] std::exception_ptr attempt(const std::function<void()>& step) const;
  /// Whether this rank's buffers could lie in its device's memory, as far as it knows by itself.
  [[nodiscard]] bool may_share_device() const;
  /// Collective, where all ranks may. @return false, on all ranks, where that does not work: nothing
  ///   is left of it.
  [[nodiscard]] bool open_on_devices(WindowRecord record, WindowFill fill);
  /// Collective.
  void open_on_host(WindowRecord record, WindowFill fill);
  /// Notes in `record` where the buffers are, or why they cannot be there. @throws CudaError where
  ///   memory is short.
  void make_room_on_device(WindowRecord& record);
  /// @throws CudaError where this rank's device does not reach another one's.
  void open_peers(const std::vector<WindowRecord>& records);
  void close_peers() noexcept;
  /// Once no rank has it open.
  void release_block() noexcept;
  [[nodiscard]] WindowMemory::Shape shape_of(std::size_t sources, OwnValue own_value) const;
  /// Whether its tensor is on a device: others find its value where it is published.
  [[nodiscard]] bool publishes() const { return tensor_.device.kind != DeviceKind::Cpu; }
  /// Collective. What all ranks say. @throws `refusal`, where this rank has one, and PeerFailure on
  ///   the others; MismatchError.
  [[nodiscard]] std::vector<WindowRecord> exchange(WindowRecord own, std::exception_ptr refusal);
  void connect(const std::vector<WindowRecord>& records);
  [[nodiscard]] const Part& part(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool counts_weight() const { return weight_state_ == AssociatedWeight::On; }
  void store_at(WindowCall& call, int rank, StoreMode mode, const WeightedBytes& value,
                WindowValues* values);
  void fetch_from(WindowCall& call, const WeightedRank& source, WindowValues* values);
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
  /// Null where the buffers are on the host.
  PeerMemory* peers_ = nullptr;
  gpu::FunctionHandle sum_kernel_ = nullptr;
  std::optional<PeerMemory::Block> block_;
  /// Another rank may have it open.
  bool may_be_open_ = false;
  /// Another rank's buffers, where this one's device reaches them.
  struct Opened {
    std::byte* buffers = nullptr;
    ShownBlock block{};
  };
  /// By rank; empty where the buffers are on the host.
  std::vector<Opened> opened_;
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
