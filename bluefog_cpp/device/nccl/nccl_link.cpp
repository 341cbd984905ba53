#include "bluefog_cpp/device/nccl/nccl_link.hpp"

#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// A group of NCCL's calls, closed on every path.
class NcclGroup {
 public:
  explicit NcclGroup(gpu::NcclApi& nccl) : nccl_(nccl) { nccl.group_start(); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() {
    if (is_open_) {
      try {
        nccl_.group_end();
      } catch (const NcclError&) {  // NOLINT: the first error is on its way
      }
    }
  }

  void end() {
    is_open_ = false;
    nccl_.group_end();
  }

 private:
  gpu::NcclApi& nccl_;
  bool is_open_ = true;
};

}  // namespace

NcclLink::NcclLink(std::shared_ptr<gpu::NcclApi> nccl, gpu::StreamHandle stream, int size,
                   const gpu::NcclId& id, int rank)
    : nccl_(std::move(nccl)), stream_(stream), comm_(nccl_->init(size, id, rank)) {}

void NcclLink::transfer(std::span<const DeviceSend> sends, std::span<DeviceReceive> receives) {
  capture(stream_, sends, receives);
}

// NCCL sees from the stream that it is captured, and needs no other call.
void NcclLink::capture(gpu::StreamHandle stream, std::span<const DeviceSend> sends,
                       std::span<DeviceReceive> receives) {
  NcclGroup group(*nccl_);
  for (const DeviceSend& send : sends) {
    nccl_->send(send.data, send.bytes, send.reader, comm_, stream);
  }
  for (DeviceReceive& receive : receives) {
    receive.data = receive.place;
    if (receive.bytes > 0) {
      nccl_->receive(receive.place, receive.bytes, receive.source, comm_, stream);
    }
  }
  group.end();
}

std::optional<std::string> NcclLink::error() {
  auto found = nccl_->async_error(comm_);
  if (found) {
    found->insert(0, "NCCL reports: ");
  }
  return found;
}

void NcclLink::abort() { nccl_->abort(std::exchange(comm_, nullptr)); }

void NcclLink::close(bool is_idle) {
  if (comm_ == nullptr) {
    return;
  }
  if (is_idle) {
    nccl_->destroy(std::exchange(comm_, nullptr));
  } else {
    abort();
  }
}

}  // namespace bluefog
