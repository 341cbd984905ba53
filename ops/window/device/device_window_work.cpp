#include "ops/window/device/device_window_work.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::ops {
namespace {

constexpr std::chrono::microseconds kQueryPeriod{50};

}  // namespace

void DeviceWindowWork::wait(WaitingStream stream) {
  if (tensors_->is_captured(stream)) {
    throw StateError(
        fmt::format("{}: expected the wait for a window's call before the capture of a CUDA graph "
                    "begins on its stream, or after its end, found it in the capture",
                    window_->where("wait")));
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

void DeviceWindowWork::synchronize() {
  wait({});
  while (!tensors_->is_over()) {
    window_->hub().check_interrupt();
    std::this_thread::sleep_for(kQueryPeriod);
  }
}

}  // namespace bluefog::ops
