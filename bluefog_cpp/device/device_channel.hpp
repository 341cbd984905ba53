#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/device/capture_lane.hpp"
#include "bluefog_cpp/device/cuda/handles.hpp"
#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/device/host_staging.hpp"
#include "bluefog_cpp/device/libraries.hpp"
#include "bluefog_cpp/engine/attendant.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/machine_layout.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

/// A call whose work is on the device's stream.
struct LaunchedCall {
  std::uint64_t call = 0;
  /// "neighbor_allreduce(float32[1024])".
  std::string text{};
  /// Ranks that it sends to or hears.
  std::vector<int> partners{};
  gpu::EventHandle done = nullptr;
  /// What the device uses meanwhile, and the flag.
  std::shared_ptr<const void> keep{};
  /// Set when the channel ends before that; null for calls that go on then.
  std::atomic<bool>* cut_short = nullptr;
  /// All exchanges of the call are launched, although it may not be complete yet.
  bool is_whole = false;
};

/// A context's part on its CUDA device: a link to the other ranks' devices, where there is one, a
/// stream of the highest priority, scratch memory and events; and what calls need that go through the
/// host.
///
/// What calls launch is ordered by the stream, which events tie to the callers' streams; nobody
/// waits for the device. What is under way is watched: when the link reports an error, a rank that it
/// needs fails or leaves, or `BLUEFOG_TIMEOUT` passes, the link is aborted, which ends the channel
/// for good.
///
/// Calls whose streams capture a CUDA graph go into it, on streams and with memory of their own
/// (`on_lane_of`). Nobody watches its replays. What they use is there as long as they are, whatever
/// becomes of the channel.
///
/// Calls between `enter` and the scope's end are made under the engine's mutex, unless said
/// otherwise.
class DeviceChannel final : public Attendant {
 public:
  /// Collective. Where no link serves all ranks, all calls go through the host; rank 0 logs which way
  /// was chosen, and why.
  /// @throws InvalidArgument for a device that is not there, UnsupportedError without CUDA, CudaError;
  ///   PeerFailure on the ranks that could have gone on.
  static std::shared_ptr<DeviceChannel> connect(Bootstrap& bootstrap,
                                                const gpu::Libraries* libraries, int device,
                                                const Logger& log, const Settings& settings,
                                                const MachineLayout& hosts);
  ~DeviceChannel() override;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Ranks of the context.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The same on all ranks.
  [[nodiscard]] DeviceWay way_of(OpKind kind) const noexcept;
  [[nodiscard]] const std::shared_ptr<gpu::HostStaging>& staging() const noexcept {
    return staging_;
  }
  [[nodiscard]] gpu::CudaApi& cuda() noexcept { return *libraries_.cuda; }
  [[nodiscard]] const std::shared_ptr<gpu::CudaApi>& shared_cuda() const noexcept {
    return libraries_.cuda;
  }
  /// That of the lane which is set.
  [[nodiscard]] gpu::StreamHandle stream() const noexcept { return lane_.stream; }
  /// From any thread.
  [[nodiscard]] gpu::DeviceScope enter() { return {*libraries_.cuda, device_}; }
  /// What comes later on `stream()` comes after what is on that one now. Nothing is ordered between a
  /// stream that captures and one that does not.
  void follow(gpu::StreamHandle other);
  /// From any thread.
  [[nodiscard]] gpu::Event take_event() { return events_->take(); }

  /// What calls are launched on and with.
  struct Lane {
    gpu::StreamHandle stream = nullptr;
    gpu::Scratch* scratch = nullptr;
    gpu::MemoryPool* memory = nullptr;
  };
  /// Sets a lane for its lifetime.
  class LaneScope {
   public:
    LaneScope(Lane& place, const Lane& lane) : place_(place), before_(place) { place = lane; }
    LaneScope(const LaneScope&) = delete;
    LaneScope& operator=(const LaneScope&) = delete;
    ~LaneScope() { place_ = before_; }

   private:
    Lane& place_;
    Lane before_;
  };
  /// That of a capture; without one that of calls that run, which is set otherwise.
  /// @throws StateError after `close`, CudaError.
  [[nodiscard]] LaneScope on_lane_of(std::optional<std::uint64_t> capture);

  /// Scratch memory for one exchange, `bytes` of it; what was handed out before may be overwritten
  /// by what comes later on the stream.
  [[nodiscard]] std::byte* scratch(std::size_t bytes) { return lane_.scratch->of(bytes); }
  /// Memory of the device for one call, at least `bytes` bytes of it. @throws CudaError.
  [[nodiscard]] gpu::MemoryBlock take_memory(std::size_t bytes) {
    take_finished();  // else what is idle may seem to be in use
    return lane_.memory->take(bytes);
  }
  /// The kernel `name`, a literal, of `image`.
  [[nodiscard]] gpu::FunctionHandle kernel(std::span<const std::byte> image, const char* name);

  /// Of calls that do not go through the host.
  [[nodiscard]] DeviceLink& link() noexcept { return *link_; }

  /// Watches the call until its `done` has happened.
  void watch(LaunchedCall call);
  /// Exchanges with that rank that were launched, where the link does not offer payloads.
  [[nodiscard]] std::uint64_t launched_with(int rank) const {
    return launched_[static_cast<std::size_t>(rank)];
  }
  void note_launched(int rank) { ++launched_[static_cast<std::size_t>(rank)]; }

  /// The device uses `used` for nobody knows how long.
  void lose(std::shared_ptr<const void> used) { lost_.push_back(std::move(used)); }

  /// Ends the channel: its link is aborted.
  void end(std::exception_ptr why) { end(why, message_of(why)); }
  /// Why the channel has ended, or null. From any thread.
  [[nodiscard]] std::exception_ptr failure() const;

  bool attend() override;
  [[nodiscard]] bool is_busy() const noexcept override {
    return !watched_.empty() || !ended_calls_.empty();
  }
  [[nodiscard]] std::vector<int> awaited_ranks() const override;
  void hear_failure(int rank, std::uint64_t call, const std::string& reason,
                    bool is_over) override;
  void hear_death(int rank, const std::string& obituary) override;
  [[nodiscard]] std::vector<EndedCall> take_ended_calls() override {
    return std::exchange(ended_calls_, {});
  }

  /// Waits for what is under way, as long as a peer may need it, and gives everything back. Without
  /// the engine's mutex, when the engine is closed.
  void close() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  DeviceChannel(gpu::Libraries libraries, int device, const Bootstrap& bootstrap, const Logger& log,
                const Settings& settings);
  /// Which kinds of calls settings send through the host, for the log: ", but allreduce …".
  [[nodiscard]] std::string forced_text() const;
  /// Collective. Makes the link, where one serves; rank 0 logs which, and why.
  void find_link(Bootstrap& bootstrap, bool loads_nccl, const MachineLayout& hosts,
                 Deadline deadline);
  /// Collective. @return why the kernels that calls need cannot be used; empty where they can.
  [[nodiscard]] std::string load_kernels(Bootstrap& bootstrap, Deadline deadline);
  /// Collective. @return why NCCL is not used; empty where it is.
  [[nodiscard]] std::string join_by_nccl(Bootstrap& bootstrap, bool loads_nccl, Deadline deadline);
  /// Collective. @return as `join_by_nccl`, of copies between devices.
  [[nodiscard]] std::string join_peers(Bootstrap& bootstrap, const MachineLayout& hosts,
                                       Deadline deadline);
  [[nodiscard]] bool is_linked() const noexcept { return link_ != nullptr && !has_ended_; }
  /// @param cause what other ranks are told.
  void end(std::exception_ptr why, const std::string& cause);
  void look(Clock::time_point now);
  bool take_finished();
  void note_quiet();
  void wait_for_watched(std::chrono::nanoseconds longest);
  /// Blocks for no graph and for no other rank.
  void end_link(void (*ending)(DeviceLink& link));

  gpu::Libraries libraries_;
  int device_;
  int rank_;
  int size_;
  Logger log_;
  Settings settings_;
  std::chrono::nanoseconds timeout_;
  gpu::StreamHandle stream_ = nullptr;
  /// Null: calls go through the host.
  std::shared_ptr<DeviceLink> link_;
  /// The link was aborted.
  bool has_ended_ = false;
  /// Nothing is under way that may wait for another rank's device.
  std::shared_ptr<std::atomic<bool>> is_quiet_ = std::make_shared<std::atomic<bool>>(true);
  std::shared_ptr<gpu::EventPool> events_;
  std::shared_ptr<gpu::HostStaging> staging_;
  std::shared_ptr<gpu::MemoryPool> memory_;
  gpu::Scratch scratch_;
  Lane lane_;
  /// Null as long as no call was captured.
  std::shared_ptr<gpu::CaptureLane> captures_;
  /// Where the link's end waits for that of graphs, or of other ranks' links.
  std::future<void> link_end_;
  std::map<const char*, gpu::FunctionHandle> kernels_;
  std::deque<LaunchedCall> watched_;
  std::vector<std::shared_ptr<const void>> lost_;
  /// By rank.
  std::vector<std::uint64_t> launched_;
  /// Other ranks have not been told of these yet.
  std::vector<EndedCall> ended_calls_;
  Clock::time_point last_look_{};
  /// When what is watched last moved.
  Clock::time_point moved_{};
  /// Why a rank that the first call needs will not come any more, and since when that is known.
  std::exception_ptr death_;
  int dead_rank_ = -1;
  Clock::time_point heard_of_death_{};
  mutable std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace bluefog
