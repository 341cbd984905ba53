#pragma once

#include <mpi.h>

#include <functional>
#include <string_view>

#include "bluefog_cpp/deadline.hpp"

namespace bluefog::mpi {

/// Tests `request` until it completes: at first without pause, then every
/// 50 µs, then every 1 ms. MPI's own waits would burn the core.
/// @param look unless empty, called about every millisecond; its exception ends the wait and not
///   the request.
/// @return false if `deadline` passed first; the request then still runs.
/// @throws MpiError, PeerFailure as `check`, naming `what`.
[[nodiscard]] bool wait(MPI_Request& request, Deadline deadline, const std::function<void()>& look,
                        std::string_view what, MPI_Comm comm);

/// The same without a deadline.
void wait(MPI_Request& request, const std::function<void()>& look, std::string_view what,
          MPI_Comm comm);

}  // namespace bluefog::mpi
