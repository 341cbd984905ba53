#include "bluefog_cpp/bootstrap/mpi/mpi_wait.hpp"

#include <chrono>
#include <thread>

#include "bluefog_cpp/bootstrap/mpi/mpi_error.hpp"

namespace bluefog::mpi {

namespace {

constexpr int kSpins = 200;
constexpr int kShortSleeps = 100;
constexpr std::chrono::microseconds kShortSleep(50);
constexpr std::chrono::milliseconds kLongSleep(1);

void back_off(int attempt) {
  if (attempt < kSpins) {
    return;
  }
  if (attempt < kSpins + kShortSleeps) {
    std::this_thread::sleep_for(kShortSleep);
  } else {
    std::this_thread::sleep_for(kLongSleep);
  }
}

// Whether the request completed before `give_up` said so.
bool wait_until(MPI_Request& request, const std::function<bool()>& give_up, std::string_view what,
                MPI_Comm comm) {
  for (int attempt = 0;; ++attempt) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what, comm);
    if (done != 0) {
      return true;
    }
    if (give_up()) {
      return false;
    }
    back_off(attempt < kSpins + kShortSleeps ? attempt : kSpins + kShortSleeps);
  }
}

}  // namespace

bool wait(MPI_Request& request, Deadline deadline, const std::function<void()>& look,
          std::string_view what, MPI_Comm comm) {
  return wait_until(
      request,
      [deadline, &look] {
        if (look) {
          look();
        }
        return deadline.expired();
      },
      what, comm);
}

void wait(MPI_Request& request, const std::function<void()>& look, std::string_view what,
          MPI_Comm comm) {
  static_cast<void>(wait_until(
      request,
      [&look] {
        look();
        return false;
      },
      what, comm));
}

}  // namespace bluefog::mpi
