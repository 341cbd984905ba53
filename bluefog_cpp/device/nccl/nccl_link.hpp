#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/device/nccl/nccl_api.hpp"

namespace bluefog {

/// Grouped sends and receives of NCCL, on a communicator over all ranks of a context.
class NcclLink final : public DeviceLink {
 public:
  /// Collective over the `size` ranks with that id; the device has been entered. @throws NcclError.
  NcclLink(std::shared_ptr<gpu::NcclApi> nccl, gpu::StreamHandle stream, int size,
           const gpu::NcclId& id, int rank);

  [[nodiscard]] DeviceWay way() const noexcept override { return DeviceWay::Nccl; }
  [[nodiscard]] bool can_be_replayed() const noexcept override { return true; }
  [[nodiscard]] bool ends_with_others() const noexcept override { return true; }
  void transfer(std::span<const DeviceSend> sends, std::span<DeviceReceive> receives) override;
  void capture(gpu::StreamHandle stream, std::span<const DeviceSend> sends,
               std::span<DeviceReceive> receives) override;
  [[nodiscard]] std::optional<std::string> error() override;
  void abort() override;
  void close(bool is_idle) override;

 private:
  std::shared_ptr<gpu::NcclApi> nccl_;
  gpu::StreamHandle stream_;
  /// Null once it is aborted or destroyed.
  gpu::CommHandle comm_;
};

}  // namespace bluefog
