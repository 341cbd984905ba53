#pragma once

#include <functional>
#include <memory>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/bootstrap/launch_environment.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog {

/// The bootstrap that fits how this process was started (`LaunchWay`): a store under bfrun's own
/// launcher, RANK and WORLD_SIZE, or Slurm without PMIx; MPI under mpirun or srun with PMIx; else a
/// single rank that needs neither. A line in the log says which, on rank 0.
///
/// Collective over the ranks that were launched together. Each call gives an
/// independent bootstrap.
/// @param interrupt_check as of `mpi::make_bootstrap`.
/// @throws UnsupportedError under torchrun, whose store torch alone can ask (`join_over_store`);
///         where this build has no MPI and MPI's launcher may have started more than one rank;
///         where bfrun started ranks without MPI, and the program has initialised it; and as
///         `LaunchEnvironment::detect`.
/// @throws StateError in what a rank has started, which is no rank (`claim_rank`).
/// @throws TimeoutError, MpiError as `mpi::make_bootstrap`, TransportError as
///   `make_store_bootstrap`.
[[nodiscard]] std::shared_ptr<Bootstrap> make_default_bootstrap(
    const Settings& settings, Deadline deadline, std::function<void()> interrupt_check = {});

/// The bootstrap of the ranks of `launch`, which meet in `store` under its prefix.
/// @throws as `make_default_bootstrap` and `make_store_bootstrap`.
[[nodiscard]] std::shared_ptr<Bootstrap> join_over_store(
    std::shared_ptr<Store> store, const LaunchEnvironment& launch, const Settings& settings,
    Deadline deadline, std::function<void()> interrupt_check = {});

}  // namespace bluefog
