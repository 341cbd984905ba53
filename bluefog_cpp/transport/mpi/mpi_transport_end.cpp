// The end of a transport: it says goodbye, and waits a little for what is on its way.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "bluefog_cpp/base/linger.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_runtime.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/mpi/mpi_transport.hpp"

namespace bluefog::mpi {

MpiTransport::~MpiTransport() {
  if (!is_running()) {
    return;  // MPI was finalised: it holds on to nothing any more
  }
  bool all_ended = false;
  try {
    say_goodbye();
    linger();
    all_ended = is_quiet();
  } catch (...) {  // out of memory: leave everything as it is
  }
  if (!all_ended) {
    // MPI may still read and write this memory, and a communicator whose
    // messages have not all come must not be used again.
    [[maybe_unused]] const State* left_to_mpi = state_.release();
  }
}

void MpiTransport::say_goodbye() {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || peer(rank).failure) {
      continue;
    }
    ControlFrame frame{.type = ControlFrame::Type::Goodbye};
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
      if (auto& stream = peer(rank).outgoing[lane]) {
        if (!peer(rank).goodbye) {
          stream->send_rest();
        }
        frame.counts[lane] = stream->sent();
      }
    }
    state_->control->send(rank, frame);
  }
}

// Drives MPI a little longer, while frames that peers have not taken yet go on their way.
void MpiTransport::linger() {
  constexpr std::chrono::microseconds kPause(50);
  const Deadline deadline = Deadline::after(linger::kLastBytes);
  // Sends to a process that failed end as well, with an error: MPI_Finalize would wait for them.
  const auto is_busy = [](const PeerState& state) {
    return !state.goodbye && std::ranges::any_of(state.outgoing, [](const auto& stream) {
      return stream && stream->is_busy();
    });
  };
  while (std::ranges::any_of(state_->peers, is_busy) && !deadline.expired()) {
    progress();
    while (poll_control()) {
    }
    std::this_thread::sleep_for(kPause);
  }
}

bool MpiTransport::is_quiet() {
  progress();
  while (poll_control()) {
  }
  bool quiet = state_->control->cancel();
  state_->control->reap();
  quiet = quiet && !state_->control->is_busy();
  if (std::ranges::any_of(state_->peers,
                          [](const PeerState& p) { return p.failure.has_value(); })) {
    return false;  // Open MPI takes harm from cancelling receives of a process that failed
  }
  for (int rank = 0; rank < size_; ++rank) {
    PeerState& state = peer(rank);
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
      if (state.incoming[lane]) {
        quiet = state.incoming[lane]->cancel() && quiet;
      }
      quiet = quiet && !(state.outgoing[lane] && state.outgoing[lane]->is_busy());
      const std::uint64_t received = state.incoming[lane] ? state.incoming[lane]->received() : 0;
      quiet =
          quiet && (rank == rank_ || (state.goodbye && state.goodbye->counts[lane] == received));
    }
  }
  return quiet;
}

}  // namespace bluefog::mpi
