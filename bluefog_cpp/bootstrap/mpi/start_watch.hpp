#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "bluefog_cpp/bootstrap/launch_environment.hpp"
#include "bluefog_cpp/bootstrap/mpi/arrival_mark.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/settings.hpp"

namespace bluefog::mpi {

/// The clock of a wait in which all ranks come together for the first time, and its words on who is
/// missing.
class StartWatch {
 public:
  /// @param launch with this rank and the number of ranks, as far as they are known.
  /// @param interrupt_check see `make_bootstrap`.
  StartWatch(LaunchEnvironment launch, const Settings& settings, Deadline deadline,
             std::function<void()> interrupt_check);

  /// To be called every few milliseconds: checks for interrupts, and logs a warning when the wait
  /// stalls, and another one each time that it has stalled as long again with other ranks missing.
  /// Once all ranks have been seen, MPI gets the same time once more: the job can begin.
  /// @throws TimeoutError at the deadline, which names the ranks that have come to this host.
  void look();

 private:
  using Seconds = std::chrono::duration<double>;

  void warn(Seconds waited);
  [[nodiscard]] std::string missing() const;

  LaunchEnvironment launch_;
  Seconds stall_warning_;
  Logger log_;
  Deadline deadline_;
  std::chrono::steady_clock::time_point begin_;
  RollCall roll_call_;
  Seconds next_look_;
  Seconds next_warning_;
  std::string warned_of_;
  bool has_had_more_time_ = false;
  std::function<void()> interrupt_check_;
  Seconds next_check_{0};
};

}  // namespace bluefog::mpi
