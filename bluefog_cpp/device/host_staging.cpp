#include "bluefog_cpp/device/host_staging.hpp"

#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::gpu {

HostStaging::HostStaging(std::shared_ptr<CudaApi> cuda, std::shared_ptr<EventPool> events,
                         int device, std::shared_ptr<const std::atomic<bool>> may_free)
    : cuda_(std::move(cuda)),
      events_(std::move(events)),
      device_(device),
      memory_(std::make_shared<MemoryPool>(cuda_, device, MemoryKind::Host, std::move(may_free))) {
  to_host_ = cuda_->make_stream();
  to_device_ = cuda_->make_stream();
}

HostStaging::~HostStaging() {
  try {
    const DeviceScope scope = enter();
    memory_.reset();
    cuda_->free_stream(to_host_);
    cuda_->free_stream(to_device_);
  } catch (const CudaError&) {  // NOLINT: of the process's end, when CUDA has gone already
  }
}

}  // namespace bluefog::gpu
