#pragma once

#include <memory>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// Collective. A transport that reaches every rank: MPI's where MPI started the processes, or
/// TCP's; between threads one that stands for a network. `BLUEFOG_NETWORK` chooses.
/// @throws UnsupportedError where it asks for MPI and `bootstrap` does not stand on it.
[[nodiscard]] std::unique_ptr<Transport> make_network(Bootstrap& bootstrap,
                                                      const Settings& settings, Deadline deadline);

}  // namespace bluefog
