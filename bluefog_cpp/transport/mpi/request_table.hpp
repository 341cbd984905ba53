#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace bluefog::mpi {

/// Notified when the request that it watches has ended.
class RequestOwner {
 public:
  /// The end of the request: `code` is MPI_SUCCESS or why it failed; a receive got `bytes` from
  /// `source`. May set the next request to watch. Must not throw.
  virtual void on_ended(int code, int source, std::size_t bytes) noexcept = 0;

 protected:
  ~RequestOwner() = default;
};

/// The requests that are tested together, at most one per owner.
///
/// Requests of a stream end in order for our purposes: watching the oldest one
/// is enough, and MPI makes progress on all of them.
class RequestTable {
 public:
  /// A place for `owner`'s requests. The owner outlives the table's last `poll`.
  [[nodiscard]] std::size_t add(RequestOwner& owner);

  /// Watches `request` at `place`, until it ends.
  void watch(std::size_t place, MPI_Request request) noexcept { requests_[place] = request; }

  /// Stops watching; the request, which has not ended, is the caller's again.
  [[nodiscard]] MPI_Request unwatch(std::size_t place) noexcept;

  /// Tests all requests and notifies the owners of those that ended. Does not block.
  /// @return whether any ended. `code` is set if MPI reports a failure that ended no request.
  bool poll(int& code);

 private:
  std::vector<MPI_Request> requests_;
  std::vector<RequestOwner*> owners_;
  std::vector<int> ended_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace bluefog::mpi
