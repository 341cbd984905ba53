// How a window's calls work on tensors of a device: on copies in page-locked memory of the host.
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/deadline.hpp"
#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/nccl/device_channel.hpp"
#include "ops/window_core.hpp"

namespace bluefog::ops {
namespace {

using Clock = std::chrono::steady_clock;

/// A copy of a small tensor is over sooner than a thread sleeps.
constexpr std::chrono::microseconds kBriefly{100};
constexpr std::chrono::microseconds kAskPeriod{50};
constexpr std::chrono::milliseconds kCheckPeriod{50};

/// A call under way on what was staged: `wait` returns when its result is on its way to the device.
class StagedWindowWork final : public Pending {
 public:
  StagedWindowWork(std::shared_ptr<WindowCore> core, Work task,
                   std::shared_ptr<StagedBuffers> staged)
      : core_(std::move(core)), task_(std::move(task)), staged_(std::move(staged)) {}

  void wait() override {
    task_.wait();
    WindowCore::order_streams(staged_.get());
  }

  void synchronize() override {
    wait();
    while (!staged_->is_over()) {
      core_->check_interrupt();
      std::this_thread::sleep_for(kAskPeriod);
    }
  }

  [[nodiscard]] bool done() const noexcept override { return task_.done(); }

 private:
  std::shared_ptr<WindowCore> core_;
  Work task_;
  std::shared_ptr<StagedBuffers> staged_;
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

template <typename Function>
auto WindowCore::placed(std::string_view call, const Function& function) {
  try {
    return function();
  } catch (const CudaError& error) {
    throw CudaError(error.code(), fmt::format("{}: {}", where(call), error.what()));
  }
}

std::shared_ptr<StagedBuffers> WindowCore::stage(std::string_view call,
                                                 const ConstBufferView& input,
                                                 const BufferView& output, StagingRules rules) {
  if (input.device.kind == DeviceKind::Cpu) {
    return nullptr;
  }
  auto staging = context_->device()->staging();
  if (!staging) {
    throw StateError(fmt::format("{}: the context is closed", where(call)));
  }
  return placed(call, [&] {
    return std::make_shared<StagedBuffers>(std::move(staging), input, output, rules);
  });
}

void WindowCore::on_copy(WindowCall& call, StagedBuffers& staged,
                         const std::function<void(std::byte* data)>& body) {
  try {
    placed(call.name(), [&] { staged.begin(); });
    wait_for_copy(call, [&staged] { return staged.is_here(); });
    body(static_cast<std::byte*>(staged.host_output().data));
    placed(call.name(), [&] { staged.finish(); });
  } catch (...) {
    end_quietly(staged);
    throw;
  }
}

void WindowCore::wait_for_copy(WindowCall& call, const std::function<bool()>& asks) {
  const auto is_done = [&] { return placed(call.name(), asks); };
  const auto begun = Clock::now();
  while (Clock::now() - begun < kBriefly) {
    if (is_done()) {
      return;
    }
    std::this_thread::yield();
  }
  const Deadline deadline = hub_->deadline();
  WindowWait wait(call, WindowWait::For::Copy, context_->rank());
  auto next_check = begun + kCheckPeriod;
  // A process that was stopped meanwhile looks once more.
  for (bool is_last = false; !is_done(); is_last = deadline.expired()) {
    if (is_last) {
      throw TimeoutError(fmt::format(
          "{}: the copy of the tensor between CUDA device {} and the host was not done after "
          "{:.1f} s (BLUEFOG_TIMEOUT)",
          where(call.name()), tensor_.device.index, deadline.timeout().count()));
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

void WindowCore::order_streams(StagedBuffers* staged) {
  if (staged != nullptr) {
    staged->order_streams();
  }
}

Work WindowCore::start(std::shared_ptr<StagedBuffers> staged, std::function<void()> task) {
  Work work = tasks().submit(std::move(task));
  return staged ? Work(std::make_shared<StagedWindowWork>(shared_from_this(), std::move(work),
                                                          std::move(staged)))
                : work;
}

void WindowCore::publish_value(WindowCall& call, const std::byte* value) {
  const LockSite site{.call = &call, .rank = context_->rank()};
  own_->publish(value, [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); });
}

void WindowCore::publish(WindowStream stream) {
  constexpr std::string_view kCall = "win_publish";
  if (!publishes()) {
    return;
  }
  run(kCall, [&](WindowCall& call) {
    const auto staged = stage_own(kCall, stream);
    on_host(call, nullptr, staged.get(),
            [&](const std::byte* value) { publish_value(call, value); });
    order_streams(staged.get());
  });
}

}  // namespace bluefog::ops
