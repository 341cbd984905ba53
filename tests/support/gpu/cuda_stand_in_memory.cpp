// The stand-in's calls for memory, of which those that give it back wait for its device.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "bluefog_cpp/deadline.hpp"
#include "tests/support/gpu/cuda_stand_in.hpp"

namespace bluefog::testing {
namespace {

/// Longer than any work of a test takes.
constexpr std::chrono::seconds kLongestWait{5};

}  // namespace

void* CudaStandIn::allocate(std::size_t bytes) {
  check_entered("cuMemAlloc");
  check_capture_mode("cuMemAlloc");
  void* const memory = book_.allocate(bytes);
  const std::scoped_lock lock(mutex_);
  blocks_[static_cast<const std::byte*>(memory)] = {.bytes = bytes, .device = current_device()};
  return memory;
}

void CudaStandIn::free(void* memory) {
  check_entered("cuMemFree");
  check_capture_mode("cuMemFree");
  ipc_.forget(memory, "cuMemFree");
  book_.free(memory);
  wait_for_device("cuMemFree");
}

void CudaStandIn::keep_freed(void* memory) {
  check_entered("cuMemFree");
  ipc_.forget(memory, "cuMemFree");
  book_.free(memory);
}

void* CudaStandIn::allocate_host(std::size_t bytes) {
  check_entered("cuMemHostAlloc");
  check_capture_mode("cuMemHostAlloc");
  return book_.allocate(bytes);
}

void CudaStandIn::free_host(void* memory) {
  check_entered("cuMemFreeHost");
  check_capture_mode("cuMemFreeHost");
  book_.free(memory);
  wait_for_device("cuMemFreeHost");
}

void CudaStandIn::wait_for_device(const std::string& call) {
  const int device = current_device();
  std::vector<Stream*> streams;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& stream : streams_) {
      if (stream->device == device) {
        streams.push_back(stream.get());
      }
    }
  }
  const auto is_idle = [](Stream* stream) {
    const std::scoped_lock lock(stream->mutex);
    return stream->tasks.empty() && !stream->is_at_work;
  };
  const Deadline deadline = Deadline::after(kLongestWait);
  while (!std::ranges::all_of(streams, is_idle)) {
    if (deadline.expired()) {
      report(fmt::format("{}: waits for ever for work of device {}", call, device));
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace bluefog::testing
