#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/bootstrap/bootstrap_call.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_handles.hpp"

namespace bluefog::mpi {

/// `Bootstrap` over one communicator that it owns. See `make_bootstrap`.
class MpiBootstrap final : public Bootstrap {
 public:
  /// `comm` returns errors (MPI_ERRORS_RETURN).
  /// @param obstacle the answer of `concurrency_obstacle`.
  explicit MpiBootstrap(UniqueComm comm, std::string obstacle = {});
  ~MpiBootstrap() override;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] bool in_process() const noexcept override { return false; }

  [[nodiscard]] std::string_view concurrency_obstacle() const noexcept override {
    return obstacle_;
  }

  /// Collective. Asks all ranks for the thread level of their MPI.
  void compare_thread_levels(Deadline deadline);

  [[nodiscard]] std::vector<Blob> allgather(std::span<const std::byte> blob,
                                            Deadline deadline) override;
  void barrier(Deadline deadline) override;
  [[nodiscard]] std::shared_ptr<Bootstrap> duplicate(Deadline deadline) override;

  [[nodiscard]] std::shared_ptr<void> before_shutdown(std::function<void()> leave) override {
    return before_finalize(std::move(leave));
  }
  void note_process_failure() noexcept override { mpi::note_process_failure(); }
  void limit_shutdown(std::chrono::nanoseconds longest) noexcept override {
    mpi::limit_finalize(longest);
  }

  /// Collective, as `duplicate`: a communicator over the same ranks in the same
  /// order, which returns errors.
  [[nodiscard]] UniqueComm duplicate_comm(Deadline deadline);

 private:
  using Call = BootstrapCall;
  // A blob of at most this many bytes travels with its announcement.
  static constexpr std::size_t kFrameBlobBytes = 1008;
  // The announcement of each rank in a call: which call, and how many bytes it brings.
  struct Frame {
    Call call = Call::Barrier;
    std::uint64_t bytes = 0;
    std::array<std::byte, kFrameBlobBytes> blob{};
  };
  // A collective that runs, with all the memory that MPI uses for it.
  struct Flight;

  [[nodiscard]] std::vector<Frame> exchange_frames(Call call, std::span<const std::byte> blob,
                                                   Deadline deadline);
  [[nodiscard]] std::vector<Blob> allgather_long(const std::vector<Frame>& frames,
                                                 std::span<const std::byte> blob,
                                                 Deadline deadline);
  // Starts a collective and waits for it; returns the flight with its results.
  std::unique_ptr<Flight> run(Call call, std::unique_ptr<Flight> flight,
                              const std::function<int(Flight&)>& start, Deadline deadline);

  UniqueComm comm_;
  int rank_ = 0;
  int size_ = 0;
  std::string obstacle_;
  // Why an earlier call left this bootstrap unusable; empty while it is usable.
  std::string broken_;
  // The collective of the call that broke it, which MPI may still be working on.
  std::unique_ptr<Flight> abandoned_;
};

}  // namespace bluefog::mpi
