#include "bluefog_cpp/device/links/link_end.hpp"

#include <fmt/format.h>

#include <system_error>
#include <thread>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

// The other ranks' links, which NCCL's waits for, may in turn wait for this thread: it drives the
// engine.
void LinkEnd::begin(const std::shared_ptr<DeviceLink>& link,
                    const std::shared_ptr<gpu::CaptureLane>& captures,
                    void (*ending)(DeviceLink& link)) {
  if (!captures && !link->ends_with_others()) {
    ending(*link);
    return;
  }
  std::promise<void> is_over;
  is_over_ = is_over.get_future();
  try {
    std::thread([cuda = cuda_, device = device_, log = log_, link, captures,
                 is_over = std::move(is_over), ending]() mutable {
      try {
        const gpu::DeviceScope scope(*cuda, device);
        ending(*link);
        if (captures) {
          captures->free();
        }
      } catch (const Error& error) {
        log.error(error.what());
      }
      is_over.set_value();
    }).detach();
  } catch (const std::system_error& error) {
    log_.error(fmt::format("no thread to end calls on CUDA device {}: {}", device_, error.what()));
  }
}

bool LinkEnd::wait(std::chrono::nanoseconds longest) {
  return !is_over_.valid() || is_over_.wait_for(longest) == std::future_status::ready;
}

}  // namespace bluefog
