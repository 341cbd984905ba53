#include "ops/window/device/device_wait.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::ops {
namespace {

using Clock = std::chrono::steady_clock;

/// A copy of a small tensor is over sooner than a thread sleeps.
constexpr std::chrono::microseconds kBriefly{100};
constexpr std::chrono::microseconds kAskPeriod{50};
constexpr std::chrono::milliseconds kCheckPeriod{50};

}  // namespace

void wait_for_device(const WindowIdentity& window, WindowCall& call, DeviceWait what,
                     const std::function<bool()>& asks) {
  const auto is_done = [&] { return window.placed(call.name(), asks); };
  const auto begun = Clock::now();
  while (Clock::now() - begun < kBriefly) {
    if (is_done()) {
      return;
    }
    std::this_thread::yield();
  }
  const Deadline deadline = window.hub().deadline();
  WindowWait wait(call, what == DeviceWait::Copy ? WindowWait::For::Copy : WindowWait::For::Device,
                  window.rank());
  auto next_check = begun + kCheckPeriod;
  // A process that was stopped meanwhile looks once more.
  for (bool is_last = false; !is_done(); is_last = deadline.expired()) {
    if (is_last) {
      const int device = window.tensor().device.index;
      throw TimeoutError(fmt::format(
          "{}: {} not done after {:.1f} s (BLUEFOG_TIMEOUT)", window.where(call.name()),
          what == DeviceWait::Copy
              ? fmt::format("the copy of the tensor between CUDA device {} and the host was",
                            device)
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
      window.hub().check_interrupt();
    }
    std::this_thread::sleep_for(kAskPeriod);
  }
  wait.is_over();
}

}  // namespace bluefog::ops
