// How a window's calls work on tensors of a device: on copies in page-locked memory of the host,
// where the window's buffers are not on devices as well.
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/window/window_core.hpp"

namespace bluefog::ops {
namespace {

using Clock = std::chrono::steady_clock;

/// A copy of a small tensor is over sooner than a thread sleeps.
constexpr std::chrono::microseconds kBriefly{100};
constexpr std::chrono::microseconds kAskPeriod{50};
constexpr std::chrono::milliseconds kCheckPeriod{50};

/// A call under way on tensors of a device: `wait` returns when its result is on its way to the device.
class DeviceWindowWork final : public Pending {
 public:
  DeviceWindowWork(std::shared_ptr<WindowCore> core, Work task,
                   std::shared_ptr<DeviceTensors> tensors, const Device& device)
      : core_(std::move(core)),
        task_(std::move(task)),
        tensors_(std::move(tensors)),
        device_(device) {}

  void wait(WaitingStream stream) override {
    if (tensors_->is_captured(stream)) {
      throw StateError(fmt::format(
          "{}: expected the wait for a window's call before the capture of a CUDA graph begins on its "
          "stream, or after its end, found it in the capture",
          core_->where("wait")));
    }
    try {
      task_.wait();
    } catch (...) {
      if (task_.done()) {  // and not an interrupt alone
        const auto also = problem_of([&] { tensors_->order_streams(stream); });
      }
      throw;
    }
    tensors_->order_streams(stream);
  }

  void synchronize() override {
    wait({});
    while (!tensors_->is_over()) {
      core_->check_interrupt();
      std::this_thread::sleep_for(kAskPeriod);
    }
  }

  [[nodiscard]] bool done() const noexcept override { return task_.done(); }
  [[nodiscard]] Device device() const noexcept override { return device_; }

 private:
  std::shared_ptr<WindowCore> core_;
  Work task_;
  std::shared_ptr<DeviceTensors> tensors_;
  Device device_;
};

/// Ends what was staged for a call that has failed: the call's own error is on its way.
void end_quietly(StagedBuffers& staged) noexcept {
  try {
    staged.end();
  } catch (const Error&) {  // NOLINT: see above
  }
}

}  // namespace

BufferView WindowCore::tensor_on(WindowStream stream) const {
  BufferView view = tensor_;
  if (stream) {
    view.stream = *stream;
  }
  return view;
}

std::shared_ptr<DeviceTensors> WindowCore::note(std::string_view call,
                                                const ConstBufferView& input,
                                                const BufferView& output, StagingRules rules) {
  if (input.device.kind == DeviceKind::Cpu) {
    return nullptr;
  }
  auto staging = context_->core().device()->staging();
  if (!staging || (peers_ != nullptr && peers_->has_left())) {
    throw StateError(fmt::format("{}: the context is closed", where(call)));
  }
  return placed(call, [&] {
    DeviceChannel& channel = *context_->core().device();
    if (peers_ != nullptr) {
      check_no_capture(channel, where(call), input, output, "calls of windows");
      return std::make_shared<DeviceTensors>(*peers_, input.stream, output.stream);
    }
    check_no_capture(channel, where(call), input, output);
    return std::make_shared<DeviceTensors>(
        std::make_unique<StagedBuffers>(std::move(staging), input, output, rules));
  });
}

void WindowCore::on_copy(WindowCall& call, StagedBuffers& staged,
                         const std::function<void(std::byte*, WindowValues*)>& body) {
  try {
    placed(call.name(), [&] { staged.begin(); });
    wait_for_device(call, DeviceWait::Copy, [&staged] { return staged.is_here(); });
    body(static_cast<std::byte*>(staged.host_output().data), nullptr);
    placed(call.name(), [&] { staged.finish(); });
  } catch (...) {
    end_quietly(staged);
    throw;
  }
}

void WindowCore::wait_for_device(WindowCall& call, DeviceWait what,
                                 const std::function<bool()>& asks) {
  const auto is_done = [&] { return placed(call.name(), asks); };
  const auto begun = Clock::now();
  while (Clock::now() - begun < kBriefly) {
    if (is_done()) {
      return;
    }
    std::this_thread::yield();
  }
  const Deadline deadline = hub_->deadline();
  WindowWait wait(call, what == DeviceWait::Copy ? WindowWait::For::Copy : WindowWait::For::Device,
                  context_->rank());
  auto next_check = begun + kCheckPeriod;
  // A process that was stopped meanwhile looks once more.
  for (bool is_last = false; !is_done(); is_last = deadline.expired()) {
    if (is_last) {
      const int device = tensor_.device.index;
      throw TimeoutError(fmt::format(
          "{}: {} not done after {:.1f} s (BLUEFOG_TIMEOUT)", where(call.name()),
          what == DeviceWait::Copy
              ? fmt::format("the copy of the tensor between CUDA device {} and the host was", device)
          : what == DeviceWait::Stream
              ? fmt::format("what was on the tensor's stream of CUDA device {} was", device)
              : fmt::format("its work on CUDA device {}, which may have half written what it "
                            "writes, was",
                            device),
          deadline.timeout().count()));
    }
    if (Clock::now() >= next_check) {
      next_check = Clock::now() + kCheckPeriod;
      wait.goes_on(-1);
      hub_->check_interrupt();
    }
    std::this_thread::sleep_for(kAskPeriod);
  }
  wait.is_over();
}

void WindowCore::order_streams(DeviceTensors* tensors) {
  if (tensors != nullptr) {
    tensors->order_streams();
  }
}

Work WindowCore::start(std::shared_ptr<DeviceTensors> tensors, std::function<void()> task) {
  Work work = tasks().submit(std::move(task));
  return tensors ? Work(std::make_shared<DeviceWindowWork>(shared_from_this(), std::move(work),
                                                           std::move(tensors), tensor_.device))
                 : work;
}

void WindowCore::publish_value(WindowCall& call, const std::byte* value, WindowValues* values) {
  const LockSite site{.call = &call, .rank = context_->rank()};
  own_->publish(
      value, [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); }, values);
}

void WindowCore::publish(WindowStream stream) {
  constexpr std::string_view kCall = "win_publish";
  if (!publishes()) {
    return;
  }
  run(kCall, [&](WindowCall& call) {
    const auto tensors = note_own(kCall, stream);
    in_order(tensors.get(), [&] {
      on_values(call, tensor_.data, tensors.get(),
                [&](const std::byte* value, WindowValues* values) {
                  publish_value(call, value, values);
                });
    });
  });
}

}  // namespace bluefog::ops
