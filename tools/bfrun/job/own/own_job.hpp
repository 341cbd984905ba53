#pragma once

#include <string>

#include "tools/bfrun/job/monitor/monitored_job.hpp"
#include "tools/bfrun/options.hpp"
#include "tools/bfrun/start/environment.hpp"
#include "tools/bfrun/start/machines.hpp"

namespace bluefog::bfrun {

/// A job before its start.
struct JobPlan {
  Machines machines;
  Environment environment;
  std::string key;
  bool mpirun_binds = false;
  MonitoredJob job;
};

/// Says which cores ranks of this machine get.
/// @throws UsageError for more ranks than it takes.
void print_placement(const Options& options, const JobPlan& plan);

/// Runs a job whose ranks bfrun starts itself, and returns its exit code.
/// @throws UsageError, CommandError for a discovery program that cannot be used.
[[nodiscard]] int run_own_job(Options options, JobPlan plan);

}  // namespace bluefog::bfrun
