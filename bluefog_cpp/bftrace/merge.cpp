#include "bluefog_cpp/bftrace/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::tracing {
namespace {

/// The text up to its last whole event, closed.
std::string closed(const std::string& text) {
  const std::size_t end = text.rfind('}');
  return end == std::string::npos ? "[]" : text.substr(0, end + 1) + "]";
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw InvalidArgument(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  return text.str();
}

nlohmann::json parse_timeline(const std::string& path, const std::string& text) {
  nlohmann::json events = nlohmann::json::parse(text, nullptr, false);
  if (events.is_discarded()) {
    // Events are one per line: the last line may be cut in the middle.
    const std::size_t last_line = text.rfind(",\n");
    events = nlohmann::json::parse(closed(text), nullptr, false);
    if (events.is_discarded() && last_line != std::string::npos) {
      events = nlohmann::json::parse(closed(text.substr(0, last_line)), nullptr, false);
    }
  }
  const auto is_event = [](const nlohmann::json& event) {
    return event.is_object() && event.contains("ph") && event.contains("pid");
  };
  if (!events.is_array() || !std::ranges::all_of(events, is_event)) {
    throw InvalidArgument(
        fmt::format("{}: expected a timeline (a JSON array of trace events)", path));
  }
  return events;
}

nlohmann::json merge_timelines(const std::vector<nlohmann::json>& timelines) {
  double first = std::numeric_limits<double>::infinity();
  for (const auto& events : timelines) {
    for (const auto& event : events) {
      if (event.contains("ts")) {
        first = std::min(first, event["ts"].get<double>());
      }
    }
  }
  nlohmann::json merged = nlohmann::json::array();
  for (const auto& events : timelines) {
    for (nlohmann::json event : events) {
      if (event.contains("ts")) {
        event["ts"] = event["ts"].get<double>() - first;
      }
      merged.push_back(std::move(event));
    }
  }
  return merged;
}

}  // namespace bluefog::tracing
