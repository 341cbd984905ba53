#pragma once

#include <memory>
#include <utility>

#include "bluefog_cpp/device/device_call.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// A `DeviceCall` under way: `wait` orders streams, `synchronize` waits for the device; in a
/// capture there is nothing to synchronize.
class DeviceWork final : public Pending {
 public:
  DeviceWork(std::shared_ptr<Engine> engine, std::shared_ptr<DeviceChannel> channel,
             std::shared_ptr<DeviceCall> call)
      : engine_(std::move(engine)), channel_(std::move(channel)), call_(std::move(call)) {}

  /// Runs a call that is captured, before anybody else knows of it: it goes into the graph. Nothing
  /// else is put on its streams meanwhile. @throws what went wrong; the capture goes on.
  void run();
  void wait(WaitingStream stream) override;
  void synchronize() override;
  [[nodiscard]] bool done() const noexcept override;
  [[nodiscard]] Device device() const noexcept override {
    return {.kind = DeviceKind::Cuda, .index = channel_->device()};
  }

 private:
  void wait_in_capture(WaitingStream stream);
  void throw_if_cut_short() const;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<DeviceChannel> channel_;
  std::shared_ptr<DeviceCall> call_;
};

}  // namespace bluefog
