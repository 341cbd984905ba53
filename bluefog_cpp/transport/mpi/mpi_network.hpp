#pragma once

#include <memory>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::mpi {

/// Collective. A transport over a communicator of its own that reaches every rank of `bootstrap`;
/// null where `bootstrap` does not stand on MPI, or this build has none.
/// @throws InvalidArgument where ranks have different chunks or depths. @throws TimeoutError,
///   MpiError.
[[nodiscard]] std::unique_ptr<Transport> make_network(Bootstrap& bootstrap,
                                                      const Settings& settings, Deadline deadline);

}  // namespace bluefog::mpi
