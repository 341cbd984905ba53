#pragma once

#include <functional>
#include <memory>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/settings.hpp"

namespace bluefog {

/// The bootstrap that fits how this process was started: MPI under a launcher
/// (mpirun, bfrun, srun with PMIx), else a single rank that needs no MPI.
///
/// Collective over the ranks that were launched together. Each call gives an
/// independent bootstrap.
/// @param interrupt_check as of `mpi::make_bootstrap`.
/// @throws UnsupportedError under a launcher when this build has no MPI and
///         more than one rank may have been started, or MPI cannot join its ranks
///         (`LaunchEnvironment::detect`).
/// @throws StateError in what a rank has started, which is no rank (`claim_rank`).
/// @throws TimeoutError, MpiError as `mpi::make_bootstrap`.
[[nodiscard]] std::shared_ptr<Bootstrap> make_default_bootstrap(
    const Settings& settings, Deadline deadline, std::function<void()> interrupt_check = {});

}  // namespace bluefog
