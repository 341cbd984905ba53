#include "bluefog_cpp/bootstrap/mpi/start_watch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::mpi {

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstLook(200);
constexpr std::chrono::milliseconds kCheckPeriod(50);
constexpr double kLooksGrowBy = 1.25;

// "all 4 ranks", or "all ranks" where the launcher does not say how many.
std::string everybody(const LaunchEnvironment& launch) {
  return launch.size > 0 ? fmt::format("all {} ranks", launch.size) : "all ranks";
}

// "rank 3", or a rank of no number where the launcher does not say which.
std::string this_one(const LaunchEnvironment& launch) {
  return launch.rank >= 0 ? fmt::format("rank {}", launch.rank)
                          : fmt::format("process {}, which has no rank yet", ::getpid());
}

}  // namespace

StartWatch::StartWatch(LaunchEnvironment launch, const Settings& settings, Deadline deadline,
                       std::function<void()> interrupt_check)
    : launch_(std::move(launch)),
      stall_warning_(settings.stall_warning),
      log_(
          {.level = settings.log_level, .hide_time = settings.log_hide_time, .rank = launch_.rank}),
      deadline_(deadline),
      begin_(steady_clock::now()),
      roll_call_(launch_.job, launch_.job.empty() ? 0 : launch_.size),
      next_look_(kFirstLook),
      next_warning_(stall_warning_),
      interrupt_check_(std::move(interrupt_check)) {}

std::string StartWatch::missing() const {
  if (launch_.job.empty() || launch_.size == 0) {
    return "one or more have not come (MPI does not tell which)";
  }
  const bool has_other_hosts = launch_.local_size > 0 && launch_.local_size < launch_.size;
  return roll_call_.text() + (has_other_hosts ? " (those of other hosts never are)" : "");
}

void StartWatch::look() {
  const Seconds waited = steady_clock::now() - begin_;
  if (interrupt_check_ && waited >= next_check_) {
    next_check_ = waited + kCheckPeriod;
    interrupt_check_();
  }
  const bool is_warning_due = stall_warning_.count() > 0 && waited >= next_warning_;
  const bool is_over = deadline_.expired();
  // Ranks that give up before this one may be gone when it does.
  if (is_warning_due || is_over || waited >= next_look_) {
    roll_call_.look();
    next_look_ = waited * kLooksGrowBy;
  }
  if (is_over) {
    if (!roll_call_.all_are_here() || std::exchange(has_had_more_time_, true)) {
      throw TimeoutError(fmt::format(
          "bootstrap over MPI on {}: expected {} within {:.3g} s (BLUEFOG_TIMEOUT), {}",
          this_one(launch_), everybody(launch_), deadline_.timeout().count(), missing()));
    }
    deadline_ = deadline_.again();
  }
  if (is_warning_due) {
    warn(waited);
  }
}

void StartWatch::warn(Seconds waited) {
  next_warning_ += stall_warning_;
  if (const std::string now_missing = missing(); now_missing != warned_of_) {
    log_.warning(fmt::format("bootstrap over MPI has been waiting for {:.3g} s for {}: {}",
                             waited.count(), everybody(launch_), now_missing));
    warned_of_ = now_missing;
  }
}

}  // namespace bluefog::mpi
