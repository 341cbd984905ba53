#pragma once

#include <memory>
#include <utility>

#include "bluefog_cpp/work.hpp"
#include "ops/calls/device_tensors.hpp"
#include "ops/window/window_identity.hpp"

namespace bluefog::ops {

/// A call under way on tensors of a device: `wait` returns when its result is on its way to the
/// device.
class DeviceWindowWork final : public Pending {
 public:
  /// @param window kept until the work is gone.
  DeviceWindowWork(std::shared_ptr<const WindowIdentity> window, Work task,
                   std::shared_ptr<DeviceTensors> tensors)
      : window_(std::move(window)), task_(std::move(task)), tensors_(std::move(tensors)) {}

  void wait(WaitingStream stream) override;
  void synchronize() override;
  [[nodiscard]] bool done() const noexcept override { return task_.done(); }
  [[nodiscard]] Device device() const noexcept override { return window_->tensor().device; }

 private:
  std::shared_ptr<const WindowIdentity> window_;
  Work task_;
  std::shared_ptr<DeviceTensors> tensors_;
};

}  // namespace bluefog::ops
