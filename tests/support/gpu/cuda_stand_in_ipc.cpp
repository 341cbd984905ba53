// The stand-in's calls for memory and events of other ranks' devices.
#include <fmt/format.h>

#include "bluefog_cpp/error.hpp"
#include "tests/support/gpu/cuda_stand_in.hpp"

namespace bluefog::testing {

gpu::EventHandle CudaStandIn::make_shared_event() {
  const gpu::EventHandle event = make_event();
  const std::scoped_lock lock(mutex_);
  shared_events_.insert(event);
  return event;
}

gpu::IpcHandle CudaStandIn::export_event(gpu::EventHandle event, std::uint64_t process) {
  check_entered("cuIpcGetEventHandle");
  const std::scoped_lock lock(mutex_);
  if (!shared_events_.contains(event)) {
    report("cuIpcGetEventHandle of an event that was not made for it");
  }
  return ipc_.show(event, 1, process);
}

gpu::EventHandle CudaStandIn::open_event(const gpu::IpcHandle& handle, std::uint64_t process) {
  check_entered("cuIpcOpenEventHandle");
  return ipc_.open(handle, process, "cuIpcOpenEventHandle");
}

gpu::IpcHandle CudaStandIn::export_memory(void* memory, std::uint64_t process) {
  check_entered("cuIpcGetMemHandle");
  const std::scoped_lock lock(mutex_);
  const auto block = blocks_.find(static_cast<const std::byte*>(memory));
  if (block == blocks_.end()) {
    report("cuIpcGetMemHandle of what cuMemAlloc has not returned");
    throw CudaError(1, "cuIpcGetMemHandle: invalid argument");
  }
  return ipc_.show(memory, block->second.bytes, process);
}

void* CudaStandIn::open_memory(const gpu::IpcHandle& handle, std::uint64_t process) {
  check_entered("cuIpcOpenMemHandle");
  return ipc_.open(handle, process, "cuIpcOpenMemHandle");
}

void CudaStandIn::close_memory(void* memory) {
  check_entered("cuIpcCloseMemHandle");
  wait_for_device("cuIpcCloseMemHandle");
  if (!ipc_.close(memory, "cuIpcCloseMemHandle")) {
    report("cuIpcCloseMemHandle of what was not opened");
  }
}

void CudaStandIn::reach(int device) {
  check_entered("cuCtxEnablePeerAccess");
  const std::scoped_lock lock(mutex_);
  reached_.insert({current_device(), device});
}

const void* CudaStandIn::reached(const void* memory, const std::string& call) {
  const void* const place = ipc_.resolve(memory, call);
  if (place != memory) {
    return place;
  }
  const std::scoped_lock lock(mutex_);
  auto block = blocks_.upper_bound(static_cast<const std::byte*>(memory));
  if (block == blocks_.begin()) {
    return memory;
  }
  --block;
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(memory) - block->first);
  const int owner = block->second.device;
  if (offset < block->second.bytes && owner != current_device() &&
      !reached_.contains({current_device(), owner})) {
    report(fmt::format("{} on device {} uses memory of device {}, which it does not reach", call,
                       current_device(), owner));
  }
  return memory;
}

}  // namespace bluefog::testing
