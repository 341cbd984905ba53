#include "bluefog_cpp/transport/mpi/control_channel.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "bluefog_cpp/transport/mpi/cancel_receive.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::mpi {

ControlChannel::ControlChannel(const StreamParts& parts)
    : parts_(parts), place_(parts.table.add(*this)) {
  post();
}

// Takes all frames that are here: whoever sees a later message must not miss a frame before it.
void ControlChannel::post() noexcept {
  while (true) {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Irecv(&receiving_, sizeof receiving_, MPI_BYTE, MPI_ANY_SOURCE, kControlTag,
                         parts_.comm, &request);
    int ended = 0;
    MPI_Status status;
    if (code == MPI_SUCCESS) {
      code = MPI_Test(&request, &ended, &status);
    }
    if (code != MPI_SUCCESS) {
      parts_.failures.on_failure(-1, code);
    }
    if (code != MPI_SUCCESS || ended == 0) {
      parts_.table.watch(place_, request);  // null, if it could not be posted
      return;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    keep(status.MPI_SOURCE, static_cast<std::size_t>(std::max(bytes, 0)));
  }
}

void ControlChannel::keep(int source, std::size_t bytes) {
  if (bytes >= offsetof(ControlFrame, text) && bytes == receiving_.bytes()) {
    receiving_.text.back() = '\0';
    received_.emplace_back(source, receiving_);
    ++received_count_;
  }
}

void ControlChannel::on_ended(int code, int source, std::size_t bytes) noexcept {
  if (code != MPI_SUCCESS) {
    parts_.failures.on_failure(-1, code);
    return;
  }
  keep(source, bytes);
  post();
}

bool ControlChannel::send(int rank, const ControlFrame& frame) {
  reap();
  if (sending_.size() >= Transport::kMostWaitingControls) {
    return false;
  }
  if (spare_.empty()) {
    spare_.push_back(std::make_unique<Sending>());
  }
  sending_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  Sending& sending = *sending_.back();
  sending.frame = frame;
  const int code = MPI_Isend(&sending.frame, static_cast<int>(frame.bytes()), MPI_BYTE, rank,
                             kControlTag, parts_.comm, &sending.request);
  if (code != MPI_SUCCESS) {
    sending_.pop_back();
    parts_.failures.on_failure(rank, code);
  }
  return code == MPI_SUCCESS;
}

std::optional<std::pair<int, ControlFrame>> ControlChannel::poll() {
  if (received_.empty()) {
    return std::nullopt;
  }
  const auto oldest = received_.front();
  received_.pop_front();
  return oldest;
}

void ControlChannel::reap() noexcept {
  const auto is_on_its_way = [](const std::unique_ptr<Sending>& sending) {
    int ended = 0;
    return MPI_Test(&sending->request, &ended, MPI_STATUS_IGNORE) == MPI_SUCCESS && ended == 0;
  };
  const auto ended = std::stable_partition(sending_.begin(), sending_.end(), is_on_its_way);
  std::move(ended, sending_.end(), std::back_inserter(spare_));
  sending_.erase(ended, sending_.end());
}

bool ControlChannel::cancel() noexcept {
  MPI_Request request = parts_.table.unwatch(place_);
  return request == MPI_REQUEST_NULL || cancel_receive(request) != CancelOutcome::Running;
}

}  // namespace bluefog::mpi
