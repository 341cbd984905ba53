#pragma once

#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/settings.hpp"

namespace bluefog {

/// Collective. Compares the settings on which the way to connect depends, and tells the ranks of
/// each other's hosts.
/// @param problem why this rank cannot take part; empty if it can.
/// @return the host identity of each rank.
/// @throws InvalidArgument on the ranks that have a problem, PeerFailure on the others;
///   InvalidArgument on all ranks where a setting differs.
[[nodiscard]] std::vector<std::string> agree_on_settings(Bootstrap& bootstrap,
                                                         const Settings& settings,
                                                         const std::string& problem,
                                                         Deadline deadline);

}  // namespace bluefog
