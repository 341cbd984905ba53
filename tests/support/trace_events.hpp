#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bluefog::testing {

/// Times are doubles of about 10^15 us: they are exact to a quarter.
inline constexpr double kTraceRoundingUs = 0.5;

/// One span of a timeline.
struct TraceSpan {
  std::string row{};
  std::string name{};
  double begin_us = 0.0;
  double end_us = 0.0;

  [[nodiscard]] bool holds(const TraceSpan& inner) const noexcept {
    return row == inner.row && begin_us <= inner.begin_us + kTraceRoundingUs &&
           inner.end_us <= end_us + kTraceRoundingUs;
  }
};

inline nlohmann::json read_trace(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(std::string{std::istreambuf_iterator<char>(file), {}});
}

/// The spans of a whole timeline, by row and beginning. Spans of a row that overlap without one
/// holding the other, begins without an end and ends without a begin are test failures.
inline std::vector<TraceSpan> spans_of(const nlohmann::json& trace) {
  std::map<int, std::string> names;
  std::map<int, std::vector<TraceSpan>> open;
  std::map<int, std::vector<TraceSpan>> spans;
  const double first = trace.size() > 1 ? trace.back().value("ts", 0.0) : 0.0;
  for (const auto& event : trace) {
    const int row = event.at("tid");
    const std::string phase = event.at("ph");
    const double now = event.value("ts", first) - first;
    if (phase == "M" && event.at("name") == "thread_name") {
      names[row] = event.at("args").at("name");
    } else if (phase == "B") {
      open[row].push_back({.row = names[row], .name = event.at("name"), .begin_us = now});
    } else if (phase == "X") {
      spans[row].push_back({.row = names[row],
                            .name = event.at("name"),
                            .begin_us = now,
                            .end_us = now + event.at("dur").get<double>()});
    } else if (phase == "E") {
      if (open[row].empty()) {
        ADD_FAILURE() << "an end without a begin in row " << names[row];
        continue;
      }
      open[row].back().end_us = now;
      spans[row].push_back(open[row].back());
      open[row].pop_back();
    }
  }
  std::vector<TraceSpan> all;
  for (auto& [row, of_row] : spans) {
    EXPECT_TRUE(open[row].empty()) << "a begin without an end in row " << names[row];
    std::ranges::sort(of_row, [](const TraceSpan& a, const TraceSpan& b) {
      return a.begin_us != b.begin_us ? a.begin_us < b.begin_us : a.end_us > b.end_us;
    });
    for (std::size_t i = 0; i < of_row.size(); ++i) {
      for (std::size_t j = i + 1; j < of_row.size(); ++j) {
        const bool overlaps = of_row[j].begin_us + kTraceRoundingUs < of_row[i].end_us;
        EXPECT_TRUE(!overlaps || of_row[j].end_us <= of_row[i].end_us + kTraceRoundingUs)
            << "in row " << names[row] << ", " << of_row[j].name << " begins in " << of_row[i].name
            << " and ends after it";
      }
    }
    all.insert(all.end(), of_row.begin(), of_row.end());
  }
  return all;
}

}  // namespace bluefog::testing
