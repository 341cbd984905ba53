#pragma once

namespace bluefog::mpi {

/// Notified of MPI calls that failed on the way to or from a rank.
class FailureSink {
 public:
  virtual void on_failure(int rank, int code) noexcept = 0;

 protected:
  ~FailureSink() = default;
};

}  // namespace bluefog::mpi
