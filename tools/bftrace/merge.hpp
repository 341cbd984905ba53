#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace bluefog::bftrace {

/// The contents of a file. @throws InvalidArgument with its name and the reason.
[[nodiscard]] std::string read_file(const std::string& path);

/// The timeline of one rank.
struct RankTimeline {
  std::string path{};
  /// The rank of the events, absent if there is no event.
  std::optional<int> rank{};
  nlohmann::json events = nlohmann::json::array();
  /// Whether the file ends as a rank ends it.
  bool has_end = true;
};

/// The results of `merge_files`.
struct Joined {
  std::size_t events = 0;
  /// The files that end in the middle.
  std::vector<std::string> without_end{};
};

/// The events of one rank's timeline. A killed process's file lacks its end: whole events count.
/// @throws InvalidArgument if `text`, the contents of `path`, is no timeline, saying which event is
///   none, or is one of several ranks.
[[nodiscard]] RankTimeline parse_timeline(const std::string& path, const std::string& text);

/// The timelines of several ranks in one: each rank's rows under a process of its own, times from
/// the earliest event on.
/// @throws InvalidArgument for two of one rank.
[[nodiscard]] nlohmann::json merge_timelines(const std::vector<RankTimeline>& timelines);

/// Joins the timelines in `paths` into the file `output`, which stays as it was if that fails.
/// @throws InvalidArgument as above, if `output` is one of `paths`, or cannot be written, or where
///   no file has an event.
Joined merge_files(const std::vector<std::string>& paths, const std::string& output);

}  // namespace bluefog::bftrace
