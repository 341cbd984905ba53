#include "bluefog_cpp/device/device_work.hpp"

#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "bluefog_cpp/base/linger.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::microseconds kQueryPeriod{50};

}  // namespace

void DeviceWork::throw_if_cut_short() const {
  if (call_->is_cut_short()) {
    std::rethrow_exception(channel_->failure());
  }
}

void DeviceWork::run() {
  try {
    engine_->run(*call_);
  } catch (...) {
    engine_->run_exclusively([this] { call_->leave_capture(); });
    throw;
  }
}

void DeviceWork::wait_in_capture(WaitingStream stream) {
  engine_->run_exclusively([this, stream] { call_->finish_capture(stream); });
  call_->order_streams(stream);
}

void DeviceWork::wait(WaitingStream stream) {
  call_->check_capture(stream);
  if (call_->is_captured()) {
    wait_in_capture(stream);
    return;
  }
  call_->note_waiter(stream);
  try {
    engine_->wait(*call_);
  } catch (...) {
    const auto also = problem_of(
        [this, stream] { call_->order_streams(stream); });  // its payload may be read yet
    throw;
  }
  throw_if_cut_short();
  call_->order_streams(stream);
}

void DeviceWork::synchronize() {
  if (call_->is_captured()) {
    throw StateError(call_->describe() +
                     ": it was captured in a CUDA graph: nothing of it runs before the graph is "
                     "launched. Expected `wait` in the capture, and after launches a wait for "
                     "their stream");
  }
  wait({});
  std::optional<Deadline> last_look;
  while (true) {
    {
      const gpu::DeviceScope scope = channel_->enter();
      if (channel_->cuda().has_happened(call_->done())) {
        break;
      }
    }
    if (call_->is_cut_short()) {
      // An aborted link's work ends soon; a stream that waits for a dead process's device never
      // does.
      last_look = last_look ? last_look : Deadline::after(linger::kAbortedWork);
      if (last_look->expired()) {
        throw_if_cut_short();
      }
    }
    engine_->check_interrupt();
    std::this_thread::sleep_for(kQueryPeriod);
  }
  throw_if_cut_short();
}

bool DeviceWork::done() const noexcept { return Engine::is_done(*call_); }

}  // namespace bluefog
