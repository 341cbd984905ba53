#include "bluefog_cpp/bootstrap/mpi/mpi_start.hpp"

#include <mpi.h>

#include <chrono>
#include <memory>
#include <thread>

#include "bluefog_cpp/base/signals_elsewhere.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_error.hpp"

namespace bluefog::mpi {

namespace {

int start() {
  int provided = MPI_THREAD_SINGLE;
  return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
}

}  // namespace

MpiStart::MpiStart() {
  int is_initialized = 0;
  check(MPI_Initialized(&is_initialized), "MPI_Initialized");
  if (is_initialized != 0) {
    return;
  }
  std::promise<int> promise;
  started_ = promise.get_future().share();
  variables_.emplace();
  const SignalsElsewhere during_its_birth;
  // Left to itself: where a rank never comes, it ends with the process.
  std::thread([promise = std::move(promise)]() mutable { promise.set_value(start()); }).detach();
}

void MpiStart::wait(const std::function<void()>& look) {
  constexpr std::chrono::milliseconds kPeriod(50);
  while (started_.valid() && started_.wait_for(kPeriod) != std::future_status::ready) {
    look();
  }
  variables_.reset();
  if (started_.valid()) {
    check(started_.get(), "MPI_Init_thread");
  }
}

}  // namespace bluefog::mpi
