#include "bluefog_cpp/transport/mpi/staging_pool.hpp"

#include <cstring>
#include <string_view>

namespace bluefog::mpi {

StagedFrame& StagingPool::stage(FrameKind kind, const MessageHeader& header,
                                std::span<const std::byte> payload, std::uint64_t on_other_lane) {
  if (free_.empty()) {
    free_.reserve(frames_.size() + 1);  // so that release never allocates
    auto frame = std::make_unique<StagedFrame>();
    frame->memory = AlignedBytes(kFrameHeadBytes + payload_bytes_);
    frames_.push_back(std::move(frame));
    free_.push_back(frames_.back().get());
  }
  StagedFrame& frame = *free_.back();
  free_.pop_back();
  FrameHead head{.kind = kind,
                 .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                 .on_other_lane = on_other_lane,
                 .header = header};
  const std::string_view name = header.envelope.name;
  name.copy(head.name.data(), head.name.size() - 1);
  head.header.envelope.name = {};  // an address means nothing to the reader
  std::memcpy(frame.memory.data(), &head, sizeof head);
  if (!payload.empty()) {
    std::memcpy(frame.memory.data() + kFrameHeadBytes, payload.data(), payload.size());
  }
  frame.bytes = kFrameHeadBytes + payload.size();
  frame.uses = 1;
  return frame;
}

void StagingPool::release(StagedFrame& frame) noexcept {
  if (--frame.uses == 0) {
    free_.push_back(&frame);
  }
}

}  // namespace bluefog::mpi
