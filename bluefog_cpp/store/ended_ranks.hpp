#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace bluefog::store {

/// The key at which a launcher that keeps the store says which of its processes have ended for good,
/// and of what: they come to no start any more.
inline constexpr std::string_view kEndedRanksKey = "bfrun/ended";

/// The key at which ranks that go on without another one, which did not come to them in time and may
/// live, say its number in the launch.
inline constexpr std::string_view kLeftOutKey = "bfrun/left_out";

struct EndedRank {
  int rank = 0;  ///< of the launch
  std::string cause;

  bool operator==(const EndedRank&) const = default;
};

/// A line for each, and back. What is no such line is left out.
[[nodiscard]] inline std::string text_of(const std::vector<EndedRank>& ends) {
  std::string text;
  for (const auto& [rank, cause] : ends) {
    text += fmt::format("{} {}\n", rank, cause);
  }
  return text;
}
[[nodiscard]] inline std::vector<EndedRank> ended_ranks_from(std::string_view text) {
  std::vector<EndedRank> ends;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    EndedRank end;
    const auto [rest, status] = std::from_chars(line.data(), line.data() + line.size(), end.rank);
    if (status == std::errc{} && rest != line.data() + line.size()) {
      end.cause = std::string(rest + 1, line.data() + line.size());
      ends.push_back(std::move(end));
    }
  }
  return ends;
}

}  // namespace bluefog::store
