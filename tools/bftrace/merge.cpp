#include "tools/bftrace/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "bluefog_cpp/base/files/whole_file.hpp"
#include "bluefog_cpp/error.hpp"
#include "tools/bftrace/json_text.hpp"

namespace bluefog::bftrace {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
/// The name of the event by which a joined timeline is known.
constexpr std::string_view kJoined = "joined by bftrace merge";

/// The text up to its last whole event, closed; empty where something else follows than the start
/// of another event.
std::string closed(const std::string& text) {
  const std::size_t end = text.rfind('}');
  const bool has_event = end != std::string::npos;
  const std::size_t last = has_event ? end : text.find_first_not_of(kBlank);
  if (last == std::string::npos) {
    return "[]";  // nothing had been written
  }
  const std::size_t rest = text.find_first_not_of(kBlank, last + 1);
  const bool is_start = has_event || text[last] == '[';
  const bool goes_on = rest == std::string::npos || text[rest] == (has_event ? ',' : '{');
  return is_start && goes_on ? text.substr(0, last + 1) + "]" : "";
}

bool is_rank(const nlohmann::json& value) {
  return value.is_number_integer() && value >= 0 && value <= std::numeric_limits<int>::max();
}

/// Microseconds of which differences are finite numbers too.
bool is_time(const nlohmann::json& value) {
  constexpr double kLongest = 1e300;
  return value.is_number() && std::abs(value.get<double>()) <= kLongest;
}

/// Why `event` is no trace event of a rank; empty if it is one.
std::string why_no_event(const nlohmann::json& event) {
  struct Field {
    const char* name;
    const char* expected;
    bool (*fits)(const nlohmann::json&);
    bool is_needed;
  };
  static constexpr auto kIsText = [](const nlohmann::json& value) { return value.is_string(); };
  static constexpr auto kIsPhase = [](const nlohmann::json& value) {
    return value.is_string() && value.get_ref<const std::string&>().size() == 1;
  };
  static constexpr auto kIsInteger = [](const nlohmann::json& value) {
    return value.is_number_integer();
  };
  if (!event.is_object()) {
    return fmt::format("expected an object, found {}", event.type_name());
  }
  const bool has_time = event.value("ph", nlohmann::json()) != "M";
  const std::array fields{
      Field{"ph", "one letter", kIsPhase, true},     Field{"pid", "a rank", is_rank, true},
      Field{"tid", "an integer", kIsInteger, false}, Field{"name", "a text", kIsText, false},
      Field{"ts", "a number", is_time, has_time},    Field{"dur", "a number", is_time, false}};
  for (const Field& field : fields) {
    const auto found = event.find(field.name);
    if (found == event.end() ? field.is_needed : !field.fits(*found)) {
      return fmt::format(R"(expected {} as "{}", found {})", field.expected, field.name,
                         found == event.end() ? "none" : excerpt(*found));
    }
  }
  return {};
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) {  // an empty file is no error
    text << file.rdbuf();
  }
  if (!file.is_open() || file.bad() || text.fail()) {
    throw InvalidArgument(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  return text.str();
}

RankTimeline parse_timeline(const std::string& path, const std::string& text) {
  nlohmann::json events = parse_json(path, text);
  const bool has_end = !events.is_discarded();
  if (!has_end) {
    // Events are one per line: the last line may be cut in the middle.
    const std::size_t last_line = text.rfind(",\n");
    events = parse_json(path, closed(text));
    if (events.is_discarded() && last_line != std::string::npos) {
      events = parse_json(path, closed(text.substr(0, last_line)));
    }
  }
  const std::string expected =
      fmt::format("{}: expected the timeline of a rank (a JSON array of trace events)", path);
  if (!events.is_array()) {
    throw InvalidArgument(fmt::format("{}, found {}", expected,
                                      events.is_discarded() ? "no JSON" : events.type_name()));
  }
  RankTimeline timeline{.path = path, .has_end = has_end};
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (const std::string problem = why_no_event(events[i]); !problem.empty()) {
      throw InvalidArgument(fmt::format("{}; event {}: {}", expected, i, problem));
    }
    const int rank = events[i]["pid"].get<int>();
    if (timeline.rank.value_or(rank) != rank || events[i].value("name", "") == kJoined) {
      throw InvalidArgument(fmt::format(
          "{}, found what bftrace merge or another program has joined; give the files that it was "
          "made from",
          expected));
    }
    timeline.rank = rank;
  }
  timeline.events = std::move(events);
  return timeline;
}

nlohmann::json merge_timelines(const std::vector<RankTimeline>& timelines) {
  double first = std::numeric_limits<double>::infinity();
  std::map<int, std::string> path_of;
  for (const RankTimeline& timeline : timelines) {
    if (timeline.rank) {
      const auto [other, is_new] = path_of.emplace(*timeline.rank, timeline.path);
      if (!is_new) {
        throw InvalidArgument(
            fmt::format("expected one timeline per rank, found two of rank {}: {} "
                        "and {}",
                        other->first, other->second, timeline.path));
      }
    }
    for (const auto& event : timeline.events) {
      if (event.contains("ts")) {
        first = std::min(first, event["ts"].get<double>());
      }
    }
  }
  nlohmann::json merged = nlohmann::json::array();
  for (const RankTimeline& timeline : timelines) {
    for (nlohmann::json event : timeline.events) {
      if (event.contains("ts")) {
        event["ts"] = event["ts"].get<double>() - first;
      }
      merged.push_back(std::move(event));
    }
  }
  return merged;
}

Joined merge_files(const std::vector<std::string>& paths, const std::string& output) {
  std::vector<RankTimeline> timelines;
  for (const std::string& path : paths) {
    std::error_code absent;
    if (std::filesystem::equivalent(path, output, absent)) {
      throw InvalidArgument(
          fmt::format("--output {}: expected another file than those to join, found {} among them",
                      output, path));
    }
    timelines.push_back(parse_timeline(path, read_file(path)));
  }
  nlohmann::json merged = merge_timelines(timelines);
  Joined joined{.events = merged.size()};
  if (joined.events == 0) {
    throw InvalidArgument(
        fmt::format("expected an event in one of {} files, found none in them, from {} on",
                    paths.size(), paths.front()));
  }
  for (const RankTimeline& timeline : timelines) {
    if (!timeline.has_end) {
      joined.without_end.push_back(timeline.path);
    }
  }
  merged.push_back({{"name", kJoined}, {"ph", "M"}, {"pid", merged.front()["pid"]}, {"tid", 0}});
  write_whole_file(output, merged.dump() + '\n');
  return joined;
}

}  // namespace bluefog::bftrace
