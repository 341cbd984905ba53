#include "bluefog_cpp/bootstrap/mpi/start_watch.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::mpi {

namespace {

using std::chrono::steady_clock;

// "all 4 ranks", or "all ranks" where the launcher does not say how many.
std::string everybody(const LaunchEnvironment& launch) {
  return launch.size > 0 ? fmt::format("all {} ranks", launch.size) : "all ranks";
}

}  // namespace

StartWatch::StartWatch(LaunchEnvironment launch, const Settings& settings, Deadline deadline)
    : launch_(std::move(launch)),
      stall_warning_(settings.stall_warning),
      log_(
          {.level = settings.log_level, .hide_time = settings.log_hide_time, .rank = launch_.rank}),
      deadline_(deadline),
      begin_(steady_clock::now()),
      next_warning_(settings.stall_warning) {}

std::string StartWatch::describe(const RollCall& roll_call) const {
  if (launch_.job.empty() || launch_.size == 0) {
    return "one or more have not come (MPI does not tell which)";
  }
  const bool has_other_hosts = launch_.local_size > 0 && launch_.local_size < launch_.size;
  return roll_call.text() + (has_other_hosts ? " (those of other hosts never are)" : "");
}

void StartWatch::look() {
  const std::chrono::duration<double> waited = steady_clock::now() - begin_;
  const bool is_warning_due = stall_warning_.count() > 0 && waited >= next_warning_;
  const bool is_over = deadline_.expired();
  if (!is_warning_due && !is_over) {
    return;
  }
  const RollCall roll_call(launch_.job, launch_.size);
  if (is_over) {
    if (launch_.size == 0 || !roll_call.all_seen() || std::exchange(all_have_come_, true)) {
      throw TimeoutError(fmt::format(
          "bootstrap over MPI on rank {}: expected {} within {:.3g} s (BLUEFOG_TIMEOUT), {}",
          launch_.rank, everybody(launch_), deadline_.timeout().count(), describe(roll_call)));
    }
    deadline_ = deadline_.again();
  }
  if (is_warning_due) {
    next_warning_ += stall_warning_;
    if (warned_of_ != roll_call) {
      log_.warning(fmt::format("bootstrap over MPI has been waiting for {:.3g} s for {}: {}",
                               waited.count(), everybody(launch_), describe(roll_call)));
      warned_of_ = roll_call;
    }
  }
}

}  // namespace bluefog::mpi
