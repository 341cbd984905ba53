#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/device/calls/launch_counts.hpp"
#include "bluefog_cpp/device/calls/launched_calls.hpp"
#include "bluefog_cpp/device/capture_lane.hpp"
#include "bluefog_cpp/device/cuda/handles.hpp"
#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/device/host_staging.hpp"
#include "bluefog_cpp/device/libraries.hpp"
#include "bluefog_cpp/device/links/device_way.hpp"
#include "bluefog_cpp/device/links/link_end.hpp"
#include "bluefog_cpp/device/links/loaded_kernels.hpp"
#include "bluefog_cpp/engine/progress_hook.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/machine_layout.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

namespace shm {
class HostArena;
}

/// A context's part on its CUDA device: a link to the other ranks' devices, where there is one, a
/// stream of the highest priority, scratch memory and events; and the staging for calls through the
/// host.
///
/// Calls are launched in the order of the stream, which events tie to the callers' streams; nobody
/// waits for the device. They are watched until they are done: when the link reports an error, a
/// rank that it needs fails or leaves, or `BLUEFOG_TIMEOUT` passes, the link is aborted, which ends
/// the channel for good.
///
/// Calls whose streams capture a CUDA graph go into it, on streams and with memory of their own
/// (`on_lane_of`). Nobody watches its replays. Their memory is there as long as they are, whatever
/// becomes of the channel.
///
/// Calls between `enter` and the scope's end are made under the engine's mutex, unless said
/// otherwise.
class DeviceChannel final : public ProgressHook {
 public:
  /// Collective. All calls go through the host where no link serves all ranks; rank 0 logs which
  /// way was chosen, and why.
  /// @param arena the memory that the ranks of this host share; null where they share none.
  /// @throws InvalidArgument for a device that is not there, UnsupportedError without CUDA,
  ///   CudaError; PeerFailure on the ranks that could have gone on.
  static std::shared_ptr<DeviceChannel> connect(Bootstrap& bootstrap,
                                                const gpu::Libraries* libraries, int device,
                                                const Logger& log, const Settings& settings,
                                                const MachineLayout& hosts,
                                                std::shared_ptr<shm::HostArena> arena);
  ~DeviceChannel() override;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Ranks of the context.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The same on all ranks.
  [[nodiscard]] DeviceWay way_of(OpKind kind) const noexcept {
    return bluefog::way_of(kind, settings_, link_ ? link_->way() : DeviceWay::Host);
  }
  [[nodiscard]] const std::shared_ptr<gpu::HostStaging>& staging() const noexcept {
    return staging_;
  }
  [[nodiscard]] gpu::CudaApi& cuda() noexcept { return *libraries_.cuda; }
  [[nodiscard]] const std::shared_ptr<gpu::CudaApi>& shared_cuda() const noexcept {
    return libraries_.cuda;
  }
  /// The stream of the lane that is set.
  [[nodiscard]] gpu::StreamHandle stream() const noexcept { return lane_.stream; }
  /// From any thread.
  [[nodiscard]] gpu::DeviceScope enter() { return {*libraries_.cuda, device_}; }
  /// Orders what comes later on `stream()` behind what is on that one now. Nothing is ordered
  /// between a stream that captures and one that does not.
  void follow(gpu::StreamHandle other);
  /// From any thread.
  [[nodiscard]] gpu::Event take_event() { return events_->take(); }

  /// The stream and the memory that calls are launched on and with.
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
  /// Sets the lane of a capture, or, without one, leaves the lane of calls that run.
  /// @throws StateError after `close`, CudaError.
  [[nodiscard]] LaneScope on_lane_of(std::optional<std::uint64_t> capture);

  /// Scratch memory for one exchange, `bytes` of it; what was handed out before may be overwritten
  /// by what comes later on the stream.
  [[nodiscard]] std::byte* scratch(std::size_t bytes) { return lane_.scratch->of(bytes); }
  /// Memory of the device for one call, at least `bytes` bytes of it. @throws CudaError.
  [[nodiscard]] gpu::MemoryBlock take_memory(std::size_t bytes) {
    launched_.take_finished();  // else what is idle may seem to be in use
    return lane_.memory->take(bytes);
  }
  /// The kernel `name`, a literal, of `image`.
  [[nodiscard]] gpu::FunctionHandle kernel(std::span<const std::byte> image, const char* name) {
    return kernels_.find(image, name);
  }

  /// The link of calls that do not go through the host.
  [[nodiscard]] DeviceLink& link() noexcept { return *link_; }

  /// Watches the call until its `done` has happened.
  void watch(LaunchedCall call) { launched_.add(std::move(call)); }
  /// Exchanges with other ranks that were launched, where the link does not offer payloads.
  [[nodiscard]] LaunchCounts& launches() noexcept { return launches_; }

  /// Whether the device still does calls that were cut short. From any thread, also after `close`.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& is_stuck() const noexcept {
    return launched_.is_stuck();
  }

  /// Keeps `used` for good: nobody knows how long the device uses it.
  void lose(std::shared_ptr<const void> used) { lost_.push_back(std::move(used)); }

  /// Ends the channel: its link is aborted.
  void end(std::exception_ptr why) { end(why, message_of(why)); }
  /// Why the channel has ended, or null. From any thread.
  [[nodiscard]] std::exception_ptr failure() const;

  bool attend() override;
  [[nodiscard]] bool is_busy() const noexcept override {
    return !launched_.is_empty() || launched_.has_news();
  }
  [[nodiscard]] std::vector<int> awaited_ranks() const override;
  void note_failure(int rank, std::uint64_t call, const std::string& reason, bool is_over) override;
  void note_death(int rank, const std::string& cause_of_death) override;
  [[nodiscard]] std::vector<EndedCall> take_ended_calls() override { return launched_.take_news(); }

  /// Waits for calls under way, as long as a peer may need them, and gives everything back. Without
  /// the engine's mutex, when the engine is closed.
  void close() noexcept;

 private:
  DeviceChannel(gpu::Libraries libraries, int device, const Bootstrap& bootstrap, const Logger& log,
                const Settings& settings);
  [[nodiscard]] bool is_linked() const noexcept { return link_ != nullptr && !has_ended_; }
  /// @param cause for reports to other ranks.
  void end(std::exception_ptr why, const std::string& cause);

  gpu::Libraries libraries_;
  int device_;
  int rank_;
  int size_;
  Logger log_;
  Settings settings_;
  gpu::StreamHandle stream_ = nullptr;
  /// Null: calls go through the host.
  std::shared_ptr<DeviceLink> link_;
  /// The link was aborted.
  bool has_ended_ = false;
  LaunchedCalls launched_;
  LaunchCounts launches_;
  std::shared_ptr<gpu::EventPool> events_;
  std::shared_ptr<gpu::HostStaging> staging_;
  std::shared_ptr<gpu::MemoryPool> memory_;
  gpu::Scratch scratch_;
  Lane lane_;
  /// Null as long as no call was captured.
  std::shared_ptr<gpu::CaptureLane> captures_;
  LinkEnd link_end_;
  gpu::LoadedKernels kernels_;
  std::vector<std::shared_ptr<const void>> lost_;
  mutable std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace bluefog
