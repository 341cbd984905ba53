#pragma once

#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {

/// Starts the ranks that `options` ask for, stays until they have ended, and returns the exit code
/// of the job. Prints the placement and the ranks that died to standard error.
///
/// @throws UsageError for hosts, interfaces or an mpirun that cannot be used; TransportError when
/// mpirun cannot be started.
[[nodiscard]] int run_job(const Options& options);

/// The mpirun that run_job would use. @throws UsageError.
[[nodiscard]] std::string locate_mpirun(const Options& options);

}  // namespace bluefog::bfrun
