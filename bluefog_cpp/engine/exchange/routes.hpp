#pragma once

#include <vector>

#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// The transport that leads to each rank (null for the rank itself).
using Routes = std::vector<Transport*>;

}  // namespace bluefog
