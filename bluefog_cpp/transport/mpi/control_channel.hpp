#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/mpi/frame.hpp"
#include "bluefog_cpp/transport/mpi/outgoing_stream.hpp"

namespace bluefog::mpi {

/// Small frames between any two ranks, in the order of their sending. Best
/// effort: none is sent while too many are on their way.
class ControlChannel final : private RequestOwner {
 public:
  explicit ControlChannel(const StreamParts& parts);
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  /// @return false if it was not sent.
  bool send(int rank, const ControlFrame& frame);

  /// Oldest frame that has come, with its sender.
  [[nodiscard]] std::optional<std::pair<int, ControlFrame>> poll();

  /// The number of frames that have come.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_count_; }

  /// True while frames of this rank are on their way.
  [[nodiscard]] bool is_busy() const noexcept { return !sending_.empty(); }
  /// Forgets sends that have ended.
  void reap() noexcept;

  /// Ends the receive that is posted. @return false if it would not end.
  [[nodiscard]] bool cancel() noexcept;

 private:
  struct Sending {
    MPI_Request request = MPI_REQUEST_NULL;
    ControlFrame frame{};
  };

  void on_ended(int code, int source, std::size_t bytes) noexcept override;
  void post() noexcept;
  void keep(int source, std::size_t bytes);

  StreamParts parts_;
  std::size_t place_;
  ControlFrame receiving_{};
  std::deque<std::pair<int, ControlFrame>> received_;
  std::uint64_t received_count_ = 0;
  std::vector<std::unique_ptr<Sending>> sending_;
  /// Ended sends, kept so that receipts need no memory anew.
  std::vector<std::unique_ptr<Sending>> spare_;
};

}  // namespace bluefog::mpi
