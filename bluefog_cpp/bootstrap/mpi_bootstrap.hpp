#pragma once

#include <functional>
#include <memory>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/bootstrap/launch_environment.hpp"
#include "bluefog_cpp/settings.hpp"

namespace bluefog::mpi {

/// Whether ranks can join over MPI: this build has it, or loads it (BLUEFOG_MPI_AT_RUN_TIME), which
/// is tried here. Without it `make_bootstrap` throws.
[[nodiscard]] bool is_available() noexcept;

/// The number of ranks of an MPI that is initialised in this process; 0 where none is.
[[nodiscard]] int size_of_running_world() noexcept;

/// A bootstrap over all ranks of MPI_COMM_WORLD, on a communicator of its own.
///
/// Initialises MPI if nobody has; then MPI is finalised when the process exits.
/// MPI that others initialised is used and left alone. Waits test and back off
/// (50 µs, then 1 ms), so that they leave the core to others.
///
/// A call that ended in TimeoutError, PeerFailure or MpiError leaves the ranks
/// at different places: the bootstrap then refuses further calls with
/// StateError. Ranks that make different calls all get MismatchError, and go on.
/// @param launch what the environment tells of the ranks.
/// @param interrupt_check called about every 50 ms while ranks are waited for, unless empty; its
///   exception ends the wait, as a time-out does.
/// @throws UnsupportedError if this build has no MPI or finds none to load, MPI was finalised
///         before, its thread level is below MPI_THREAD_SERIALIZED, or it has found fewer ranks than
///         `launch` says.
/// @throws TimeoutError, which says how long it waited and which ranks of this host had come, also
///         where MPI's own start waits for them; it may be called again. @throws MpiError.
[[nodiscard]] std::shared_ptr<Bootstrap> make_bootstrap(const LaunchEnvironment& launch,
                                                        const Settings& settings, Deadline deadline,
                                                        std::function<void()> interrupt_check = {});

}  // namespace bluefog::mpi
