#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/device/libraries.hpp"
#include "tests/support/gpu/nccl_stand_in.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {

/// One rank of a run, whose context uses a device of its own.
class DeviceRank {
 public:
  DeviceRank(Context& context, std::shared_ptr<CudaStandIn> cuda,
             std::shared_ptr<NcclStandIn> nccl);
  ~DeviceRank();

  Context& context;
  CudaStandIn& cuda;
  NcclStandIn& nccl;
  [[nodiscard]] const std::shared_ptr<CudaStandIn>& shared_cuda() const noexcept { return cuda_; }
  /// The user's stream.
  gpu::StreamHandle stream;

  /// Device memory with these values, written on `on`, the stream that orders the view. It begins
  /// `shift` bytes behind a multiple of 256.
  [[nodiscard]] BufferView upload(Values values, gpu::StreamHandle on, std::size_t shift = 0);
  [[nodiscard]] BufferView upload(const Values& values) { return upload(values, stream); }
  /// The values that a user's kernel reads on the view's stream, without the host waiting first.
  [[nodiscard]] Values download(const BufferView& view);

  /// Captures the work that `body` puts on the rank's stream, and on streams that it forks from it.
  /// All ranks call it, and begin and end together: other threads take no memory meanwhile.
  [[nodiscard]] std::shared_ptr<CapturedGraph> capture(
      const std::function<void()>& body, gpu::CaptureMode mode = gpu::CaptureMode::Global);

  /// Work that comes later on `on` waits until `open`; at the latest the rank's end opens it.
  void shut(gpu::StreamHandle on);
  /// The same after the next `copies` copies on `on`.
  void shut_after(gpu::StreamHandle on, int copies);
  void open();

 private:
  [[nodiscard]] CudaStandIn::Task shut_gate();

  std::shared_ptr<CudaStandIn> cuda_;
  std::shared_ptr<NcclStandIn> nccl_;
  struct Gate;
  std::shared_ptr<Gate> gate_;
};

/// How the ranks of a run reach each other's devices.
enum class Reach {
  Nccl,
  /// Copies between devices, as between processes.
  PeerProcesses,
  /// Copies between devices in one process.
  PeerThreads,
  /// No NCCL, and nothing else is wanted.
  Host,
};

/// The settings of a run.
struct DeviceRanks {
  int at_least = 1;
  int at_most = 8;
  std::vector<Layout> layouts{Layout::OneHost};
  std::function<void(Settings&)> settings{};
  Reach reach = Reach::Nccl;
  /// Number of ranks that share a device.
  int ranks_per_device = 1;
  /// The value of `Ranks::expect_usable`.
  bool expect_usable = true;
  /// Whether the test makes mistakes by intention.
  bool expect_mistakes = false;
  /// Whether `CudaStandIn::let_hosts_order` is called.
  bool hosts_order = false;
};

/// Runs `body` as every rank, threads of this process, for 1, 2, 3, 4 and 8 ranks; a mistake that
/// the stand-in finds is a failure.
void on_device_ranks(const DeviceRanks& ranks, const std::function<void(DeviceRank&)>& body);

}  // namespace bluefog::testing
