#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bluefog_cpp/base/deadline.hpp"
#include "bluefog_cpp/base/log.hpp"
#include "bluefog_cpp/base/settings.hpp"
#include "bluefog_cpp/transport/attendant.hpp"
#include "bluefog_cpp/transport/bootstrap.hpp"
#include "bluefog_cpp/transport/cuda/handles.hpp"
#include "bluefog_cpp/transport/cuda/host_staging.hpp"
#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/transport/nccl/libraries.hpp"

namespace bluefog {

/// How calls with buffers on a device are carried out.
enum class DeviceWay : std::uint8_t {
  /// From device to device, by NCCL.
  Nccl,
  /// Through page-locked memory of the host, by the transports of calls on the CPU.
  Host,
};

/// Bytes between a device's memory and one rank's.
struct DeviceTransfer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
};

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
};

/// A context's part on its CUDA device: an NCCL communicator over the context's ranks, a stream of
/// the highest priority, scratch memory and events; and what calls need that go through the host.
///
/// What calls launch is ordered by the stream, which events tie to the callers' streams; nobody
/// waits for the device. What is under way is watched: when NCCL reports an error, a rank that it
/// needs fails or leaves, or `BLUEFOG_TIMEOUT` passes, the communicator is aborted, which ends the
/// channel for good.
///
/// Calls between `enter` and the scope's end are made under the engine's mutex, unless said
/// otherwise.
class DeviceChannel final : public Attendant {
 public:
  /// Collective. Where a rank has no NCCL, or NCCL refuses, all calls go through the host; rank 0
  /// logs which way was chosen, and why.
  /// @throws InvalidArgument for a device that is not there, UnsupportedError without CUDA, CudaError;
  ///   PeerFailure on the ranks that could have gone on.
  static std::shared_ptr<DeviceChannel> connect(Bootstrap& bootstrap,
                                                const gpu::Libraries* libraries, int device,
                                                const Logger& log, const Settings& settings);
  ~DeviceChannel() override;

  [[nodiscard]] int device() const noexcept { return device_; }
  /// The same on all ranks.
  [[nodiscard]] DeviceWay way_of(OpKind kind) const noexcept;
  [[nodiscard]] const std::shared_ptr<gpu::HostStaging>& staging() const noexcept {
    return staging_;
  }
  [[nodiscard]] gpu::CudaApi& cuda() noexcept { return *libraries_.cuda; }
  [[nodiscard]] gpu::StreamHandle stream() const noexcept { return stream_; }
  /// From any thread.
  [[nodiscard]] gpu::DeviceScope enter() { return {*libraries_.cuda, device_}; }
  /// From any thread.
  [[nodiscard]] gpu::Event take_event() { return events_->take(); }

  /// Scratch memory for one exchange, `bytes` of it; what was handed out before may be overwritten
  /// by what comes later on the stream.
  [[nodiscard]] std::byte* scratch(std::size_t bytes);
  /// The kernel `name`, a literal, of `image`.
  [[nodiscard]] gpu::FunctionHandle kernel(std::span<const std::byte> image, const char* name);

  /// Sends and receives at the same time. @throws NcclError.
  void transfer(std::span<const DeviceTransfer> sends, std::span<const DeviceTransfer> receives);

  /// Watches the call until its `done` has happened.
  void watch(LaunchedCall call);

  /// Ends the channel: its communicator is aborted.
  void end(std::exception_ptr why);
  /// Why the channel has ended, or null. From any thread.
  [[nodiscard]] std::exception_ptr failure() const;

  bool attend() override;
  [[nodiscard]] bool is_busy() const noexcept override { return !watched_.empty(); }
  [[nodiscard]] std::vector<int> awaited_ranks() const override;
  void hear_failure(int rank, std::uint64_t call, const std::string& reason) override;
  void hear_death(int rank, const std::string& obituary) override;

  /// Waits for what is under way, as long as a peer may need it, and gives everything back. Without
  /// the engine's mutex, when the engine is closed.
  void close() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  DeviceChannel(gpu::Libraries libraries, int device, int rank, const Logger& log,
                const Settings& settings);
  /// Collective. @return why NCCL is not used; empty where it is.
  [[nodiscard]] std::string find_way(Bootstrap& bootstrap, bool loads_nccl, Deadline deadline);
  void join(Bootstrap& bootstrap, const gpu::NcclId& id);
  void look(Clock::time_point now);
  bool take_finished();
  void wait_for_watched(std::chrono::nanoseconds longest);

  gpu::Libraries libraries_;
  int device_;
  int rank_;
  Logger log_;
  Settings settings_;
  std::chrono::nanoseconds timeout_;
  bool uses_nccl_ = false;
  gpu::StreamHandle stream_ = nullptr;
  gpu::CommHandle comm_ = nullptr;
  std::shared_ptr<gpu::EventPool> events_;
  std::shared_ptr<gpu::HostStaging> staging_;
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  /// All there was: what is under way may still use a smaller one.
  std::vector<void*> allocated_;
  std::map<const char*, gpu::FunctionHandle> kernels_;
  std::deque<LaunchedCall> watched_;
  Clock::time_point last_look_{};
  /// When what is watched last moved.
  Clock::time_point moved_{};
  /// Why a rank that the first call needs will not come any more, and since when that is known.
  std::exception_ptr death_;
  Clock::time_point heard_of_death_{};
  mutable std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace bluefog
