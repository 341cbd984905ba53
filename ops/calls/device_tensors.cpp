#include "ops/calls/device_tensors.hpp"

#include <algorithm>

namespace bluefog::ops {

DeviceTensors::DeviceTensors(PeerMemory& memory, gpu::StreamHandle input, gpu::StreamHandle output)
    : memory_(&memory) {
  const gpu::DeviceScope scope = memory_->enter();
  memory_->cuda().record(ready_.emplace_back(memory_->take_event()).get(), input);
  if (output != input) {
    memory_->cuda().record(ready_.emplace_back(memory_->take_event()).get(), output);
  }
}

bool DeviceTensors::is_ready() {
  const gpu::DeviceScope scope = memory_->enter();
  return std::ranges::all_of(ready_, [this](const gpu::Event& event) {
    return memory_->cuda().has_happened(event.get());
  });
}

}  // namespace bluefog::ops
