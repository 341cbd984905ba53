#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bluefog::tracing {

/// The contents of a file. @throws InvalidArgument with its name and the reason.
[[nodiscard]] std::string read_file(const std::string& path);

/// The events of one rank's timeline. A file whose process was killed lacks its end: events that
/// are whole count.
/// @throws InvalidArgument if `text`, the contents of `path`, is no timeline.
[[nodiscard]] nlohmann::json parse_timeline(const std::string& path, const std::string& text);

/// The timelines of several ranks in one: rows of each rank under its own process, times from the
/// earliest event on.
[[nodiscard]] nlohmann::json merge_timelines(const std::vector<nlohmann::json>& timelines);

}  // namespace bluefog::tracing
