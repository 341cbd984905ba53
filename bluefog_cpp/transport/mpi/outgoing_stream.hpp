#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "bluefog_cpp/transport/mpi/request_table.hpp"
#include "bluefog_cpp/transport/mpi/staging_pool.hpp"
#include "bluefog_cpp/transport/mpi/stream_failure.hpp"

namespace bluefog::mpi {

/// The parts that every stream of a transport uses.
struct StreamParts {
  MPI_Comm comm;
  RequestTable& table;
  StagingPool& pool;
  FailureSink& failures;
  std::size_t chunk_bytes;
  std::size_t depth;
};

/// Frames to one rank on one lane: sent in order, at most `depth` at a time.
///
/// Every few frames one is sent synchronously: it ends only when the reader has
/// posted a receive for it. So a sender cannot run ahead without bounds, and
/// small messages need no acknowledgement of their own.
class OutgoingStream final : private RequestOwner {
 public:
  OutgoingStream(const StreamParts& parts, int rank, Lane lane);
  OutgoingStream(const OutgoingStream&) = delete;
  OutgoingStream& operator=(const OutgoingStream&) = delete;

  /// True if the next frame would be sent at once.
  [[nodiscard]] bool has_room() const noexcept {
    return waiting_.empty() && running_ < ring_.size();
  }
  /// Sends `frame`, now or when there is room.
  void send(StagedFrame& frame);

  /// Notes that the next frames are a message of that call and name, which its reader will confirm.
  void note_message(CallId id, std::uint32_t name_hash) { untaken_.push_back({id, name_hash}); }
  /// Notes how many messages the reader has taken, of all that were noted.
  void note_taken(std::uint64_t messages) noexcept;
  /// Whether the reader has yet to take a message with that name, of an exchange before `first`.
  [[nodiscard]] bool has_untaken(std::uint32_t name_hash, CallId first) const noexcept;

  /// Sends what waits, without regard to the depth: for a stream that ends.
  void send_rest();
  /// Drops the frames that wait: the rank is gone.
  void drop_waiting() noexcept;

  /// True while frames are on their way.
  [[nodiscard]] bool is_busy() const noexcept { return running_ > 0 || !waiting_.empty(); }
  /// Frames given to MPI so far.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  /// Those, and the frames that wait.
  [[nodiscard]] std::uint64_t begun() const noexcept { return sent_ + waiting_.size(); }

 private:
  struct Sending {
    MPI_Request request = MPI_REQUEST_NULL;
    StagedFrame* frame = nullptr;
  };

  struct Untaken {
    CallId id{};
    std::uint32_t name_hash = 0;
  };

  void on_ended(int code, int source, std::size_t bytes) noexcept override;
  [[nodiscard]] MPI_Request start(StagedFrame& frame) noexcept;
  void push(StagedFrame& frame) noexcept;
  void watch_oldest() noexcept;

  StreamParts parts_;
  int rank_;
  Lane lane_;
  std::size_t place_;
  std::vector<Sending> ring_;
  std::size_t oldest_ = 0;
  std::size_t running_ = 0;
  std::deque<StagedFrame*> waiting_;
  std::deque<Untaken> untaken_;
  std::uint64_t taken_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t synchronous_every_;
};

}  // namespace bluefog::mpi
