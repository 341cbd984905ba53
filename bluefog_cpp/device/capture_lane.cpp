#include "bluefog_cpp/device/capture_lane.hpp"

#include <utility>

namespace bluefog::gpu {

StreamHandle CaptureLane::stream_for(std::uint64_t capture) {
  StreamHandle idle = nullptr;
  for (const StreamHandle stream : streams_) {
    const CaptureInfo own = cuda_->capture_of(stream);
    if (own.status == CaptureStatus::None) {
      idle = stream;
    } else if (own.id == capture) {
      return stream;
    }
  }
  return idle != nullptr ? idle : streams_.emplace_back(cuda_->make_stream());
}

void CaptureLane::free() {
  scratch_.free();
  memory_.reset();
  for (const StreamHandle stream : std::exchange(streams_, {})) {
    cuda_->free_stream(stream);
  }
}

}  // namespace bluefog::gpu
