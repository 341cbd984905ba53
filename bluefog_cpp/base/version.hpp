#pragma once

#include <string>

namespace bluefog {

/// The version of this library: "0.1.0".
[[nodiscard]] std::string own_version();

}  // namespace bluefog
