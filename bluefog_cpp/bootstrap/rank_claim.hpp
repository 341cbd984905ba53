#pragma once

#include "bluefog_cpp/bootstrap/launch_environment.hpp"

namespace bluefog {

/// Makes this process the one that is `launch.rank` of `launch.job`, until it ends. Programs that a
/// rank starts inherit the launcher's variables: without this they would join the launch in the
/// rank's place, and both would wait for each other in MPI_Finalize.
///
/// The claim is a socket in the abstract namespace, which the system takes back with the process.
/// Nothing is claimed where the launcher names no job or rank, or the system has no socket left;
/// one of another user counts for nothing.
/// @throws StateError where another process of this user has it: this process is one that the rank
///   has started, or a fork of it.
void claim_rank(const LaunchEnvironment& launch);

}  // namespace bluefog
