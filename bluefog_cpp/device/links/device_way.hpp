#pragma once

#include <string>

#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

/// The way of calls of that kind, the same on all ranks.
/// @param linked the way of the link between devices; `Host` where there is none.
[[nodiscard]] DeviceWay way_of(OpKind kind, const Settings& settings, DeviceWay linked) noexcept;

/// The kinds of calls that settings send past a link, through the host, for the log:
/// ", allreduce, broadcast through the host's memory (BLUEFOG_*_BY_MPI)".
[[nodiscard]] std::string forced_text(const Settings& settings, DeviceWay linked);

}  // namespace bluefog
