#pragma once

#include <memory>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::tcp {

/// Collective. A transport over TCP that reaches every rank of `bootstrap`. Connections are made
/// when they are first used.
/// @throws InvalidArgument, TransportError where this rank cannot listen as its settings say;
///   PeerFailure where another one cannot; UnsupportedError where versions differ; TimeoutError.
[[nodiscard]] std::unique_ptr<Transport> make_network(Bootstrap& bootstrap,
                                                      const Settings& settings, Deadline deadline);

}  // namespace bluefog::tcp
