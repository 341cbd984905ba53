#include "bluefog_cpp/device/staged_buffers.hpp"

#include <algorithm>
#include <utility>

namespace bluefog {
namespace {

/// The piece of a copy: long enough that starting it costs little beside it, short enough that the
/// first messages of a long copy leave early.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;

}  // namespace

StagedBuffers::StagedBuffers(std::shared_ptr<gpu::HostStaging> staging, ConstBufferView input,
                             BufferView output, const StagingRules& rules)
    : staging_(std::move(staging)),
      input_(std::move(input)),
      output_(std::move(output)),
      rules_(rules),
      first_streams_{input_.stream, output_.stream} {
  const gpu::DeviceScope scope = staging_->enter();
  for (const gpu::StreamHandle stream : first_streams_) {
    note_stream(stream);
  }
  block_ = staging_->take(std::max(input_.bytes(), output_.bytes()));
  if (!rules_.held) {
    begin();
  }
}

void StagedBuffers::begin() {
  const gpu::DeviceScope scope = staging_->enter();
  try {
    copy_input();
  } catch (...) {
    block_.lose();
    throw;
  }
}

StagedBuffers::~StagedBuffers() {
  if (!done_ && !arrivals_.empty()) {  // the call was never made
    block_.note_use(std::make_shared<const gpu::Event>(std::move(arrivals_.back())));
  }
}

void StagedBuffers::note_stream(gpu::StreamHandle stream) {
  if (std::ranges::find(streams_, stream) != streams_.end()) {
    return;
  }
  streams_.push_back(stream);
  staging_->cuda().record(ready_.emplace_back(staging_->take_event()).get(), stream);
}

bool StagedBuffers::is_captured(WaitingStream waiting) const {
  const gpu::DeviceScope scope = staging_->enter();
  const auto captures = [this](gpu::StreamHandle stream) {
    return staging_->cuda().capture_of(stream).status != gpu::CaptureStatus::None;
  };
  return std::ranges::any_of(first_streams_, captures) || (waiting && captures(*waiting));
}

void StagedBuffers::note_streams(WaitingStream waiting) {
  const gpu::DeviceScope scope = staging_->enter();
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    staging_->cuda().record(ready_[i].get(), streams_[i]);
  }
  if (waiting) {
    note_stream(*waiting);
  }
}

void StagedBuffers::copy_input() {
  const std::size_t bytes = input_.bytes();
  if (!rules_.reads || bytes == 0) {
    return;
  }
  gpu::CudaApi& cuda = staging_->cuda();
  cuda.wait(staging_->to_host(), ready_.front().get());
  const auto* const from = static_cast<const std::byte*>(input_.data);
  for (std::size_t begin = 0; begin < bytes; begin += kPieceBytes) {
    cuda.copy(block_.data() + begin, from + begin, std::min(kPieceBytes, bytes - begin),
              staging_->to_host());
    cuda.record(arrivals_.emplace_back(staging_->take_event()).get(), staging_->to_host());
  }
}

ConstBufferView StagedBuffers::host_input() const {
  return {block_.data(), input_.count, input_.dtype};
}

BufferView StagedBuffers::host_output() const {
  return {.data = output_block_.data() != nullptr ? output_block_.data() : block_.data(),
          .count = output_.count,
          .dtype = output_.dtype};
}

BufferView StagedBuffers::replace_output(BufferView output) {
  const gpu::DeviceScope scope = staging_->enter();
  output_ = std::move(output);
  // Memory that was just handed out is free only after the earlier work on its stream.
  streams_.push_back(output_.stream);
  staging_->cuda().record(ready_.emplace_back(staging_->take_event()).get(), output_.stream);
  output_block_ = staging_->take(output_.bytes());
  return {.data = output_block_.data(), .count = output_.count, .dtype = output_.dtype};
}

std::size_t StagedBuffers::bytes_here() {
  if (arrived_ < arrivals_.size()) {
    const gpu::DeviceScope scope = staging_->enter();
    while (arrived_ < arrivals_.size() &&
           staging_->cuda().has_happened(arrivals_[arrived_].get())) {
      ++arrived_;
    }
  }
  return arrived_ == arrivals_.size() ? input_.bytes() : arrived_ * kPieceBytes;
}

void StagedBuffers::bring_back(std::size_t until) {
  if (rules_.writes && until - brought_ >= kPieceBytes) {
    const gpu::DeviceScope scope = staging_->enter();
    copy_output(until);
  }
}

void StagedBuffers::copy_output(std::size_t until) {
  if (until <= brought_) {
    return;
  }
  gpu::CudaApi& cuda = staging_->cuda();
  if (!std::exchange(has_begun_back_, true)) {
    for (const gpu::Event& ready : ready_) {
      cuda.wait(staging_->to_device(), ready.get());
    }
  }
  if (!arrivals_.empty()) {  // what is written over has been read
    const std::size_t last = output_block_.data() != nullptr
                                 ? arrivals_.size() - 1
                                 : std::min((until - 1) / kPieceBytes, arrivals_.size() - 1);
    cuda.wait(staging_->to_device(), arrivals_[last].get());
  }
  cuda.copy(static_cast<std::byte*>(output_.data) + brought_,
            static_cast<const std::byte*>(host_output().data) + brought_, until - brought_,
            staging_->to_device());
  brought_ = until;
}

void StagedBuffers::finish() {
  const gpu::DeviceScope scope = staging_->enter();
  if (rules_.writes) {
    copy_output(output_.bytes());
  }
  end();
}

void StagedBuffers::end() {
  if (done_) {
    return;
  }
  const gpu::DeviceScope scope = staging_->enter();
  auto done = std::make_shared<const gpu::Event>(staging_->take_event());
  if (!arrivals_.empty()) {
    staging_->cuda().wait(staging_->to_device(), arrivals_.back().get());
  }
  staging_->cuda().record(done->get(), staging_->to_device());
  done_ = std::move(done);
  for (gpu::MemoryBlock* const block : {&block_, &output_block_}) {
    block->note_use(done_);
    *block = gpu::MemoryBlock();  // the next call may have it when the device is done
  }
}

bool StagedBuffers::is_over() {
  const gpu::DeviceScope scope = staging_->enter();
  return staging_->cuda().has_happened(done());
}

void StagedBuffers::order_streams(WaitingStream waiting) {
  if (!done_) {
    return;  // CUDA has no event for its end
  }
  const gpu::DeviceScope scope = staging_->enter();
  for (const gpu::StreamHandle stream : streams_) {
    staging_->cuda().wait(stream, done());
  }
  if (waiting && std::ranges::find(streams_, *waiting) == streams_.end()) {
    staging_->cuda().wait(*waiting, done());
  }
}

}  // namespace bluefog
