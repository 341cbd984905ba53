#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bluefog_cpp/transport/nccl/libraries.hpp"
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
  /// The user's stream.
  gpu::StreamHandle stream;

  /// Device memory with these values, written on `on`, of which the view says that it is ordered
  /// by. `shift` bytes behind a multiple of 256.
  [[nodiscard]] BufferView upload(Values values, gpu::StreamHandle on, std::size_t shift = 0);
  [[nodiscard]] BufferView upload(const Values& values) { return upload(values, stream); }
  /// What a kernel of the user's, on the view's stream and without the host waiting before, reads.
  [[nodiscard]] Values download(const BufferView& view);

  /// Everything that comes later on `on` waits until `open`; at the latest the rank's end opens it.
  void shut(gpu::StreamHandle on);
  /// As `shut`, after the next `copies` copies on `on`.
  void shut_after(gpu::StreamHandle on, int copies);
  void open();

 private:
  [[nodiscard]] CudaStandIn::Task shut_gate();

  std::shared_ptr<CudaStandIn> cuda_;
  std::shared_ptr<NcclStandIn> nccl_;
  struct Gate;
  std::shared_ptr<Gate> gate_;
};

/// What a run is like.
struct DeviceRanks {
  int at_least = 1;
  int at_most = 8;
  std::vector<Layout> layouts{Layout::OneHost};
  std::function<void(Settings&)> settings{};
  /// Without it calls go through the host.
  bool has_nccl = true;
  /// Mistakes that the test makes by intention.
  bool expect_mistakes = false;
};

/// Runs `body` as every rank, threads of this process, for 1, 2, 3, 4 and 8 ranks; a mistake that
/// the stand-in finds is a failure.
void on_device_ranks(const DeviceRanks& ranks, const std::function<void(DeviceRank&)>& body);

}  // namespace bluefog::testing
