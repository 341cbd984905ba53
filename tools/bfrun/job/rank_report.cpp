#include "tools/bfrun/job/rank_report.hpp"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/numbers.hpp"

namespace bluefog::bfrun {
namespace {

constexpr char kSeparator = '\x1e';
constexpr std::size_t kMaxReportBytes = 512;
constexpr std::size_t kMaxHostLength = 255;

/// The words for RankReport::Kind, in its order.
constexpr std::array<std::string_view, 6> kKinds{"start", "join", "depart", "leave", "exit", "end"};

std::string start_of_report(std::string_view key) {
  return fmt::format("{}bfrun:{}:", kSeparator, key);
}

/// Reads the fields between the key and the closing separator.
std::optional<RankReport> decode(std::string_view fields) {
  std::istringstream words{std::string(fields)};
  std::string kind;
  std::string extra;
  std::array<int, 10> numbers{};
  std::string ended_at;
  RankReport report;
  words >> kind;
  for (int& number : numbers) {
    std::string word;
    words >> word;
    const auto value = parse_int(word);
    if (!value) {
      return std::nullopt;
    }
    number = *value;
  }
  words >> ended_at;
  const auto ended_at_us = parse_number<std::int64_t>(ended_at);
  if (!ended_at_us) {
    return std::nullopt;
  }
  report.ended_at_us = *ended_at_us;
  const auto* const known = std::ranges::find(kKinds, kind);
  if (!(words >> report.host) || words >> extra || known == kKinds.end()) {
    return std::nullopt;
  }
  report.kind = static_cast<RankReport::Kind>(known - kKinds.begin());
  report.rank = numbers[0];
  report.local_rank = numbers[1];
  report.local_size = numbers[2];
  report.pid = numbers[3];
  report.placement = {numbers[4], numbers[5], numbers[6]};
  report.exit_code = numbers[7];
  report.killed_by = numbers[8];
  report.told_to_end = numbers[9] != 0;
  return report;
}

}  // namespace

int RankReport::shell_code() const { return ExitStatus{exit_code, killed_by}.shell_code(); }

std::string encode(const RankReport& report, std::string_view key) {
  return fmt::format("{}{} {} {} {} {} {} {} {} {} {} {} {} {}{}\n", start_of_report(key),
                     kKinds[static_cast<std::size_t>(report.kind)], report.rank, report.local_rank,
                     report.local_size, report.pid, report.placement.cores,
                     report.placement.cores_per_rank, report.placement.threads, report.exit_code,
                     report.killed_by, report.told_to_end ? 1 : 0, report.ended_at_us,
                     std::string_view(report.host).substr(0, kMaxHostLength), kSeparator);
}

ReportFilter::ReportFilter(std::string_view key) : start_(start_of_report(key)) {}

std::string ReportFilter::feed(std::string_view bytes) {
  std::string others;
  for (const char c : bytes) {
    if (std::exchange(skip_line_end_, false) && c == '\n') {
      continue;
    }
    if (held_.empty() && c != kSeparator) {
      others += c;
      continue;
    }
    held_ += c;
    const bool closed = held_.size() > start_.size() && c == kSeparator;
    if (closed) {
      const auto report =
          decode(std::string_view(held_).substr(start_.size(), held_.size() - start_.size() - 1));
      if (report) {
        reports_.push_back(*report);
        skip_line_end_ = true;
      } else {
        others += held_;
      }
      held_.clear();
    } else if (held_.compare(0, start_.size(), start_, 0, held_.size()) != 0 ||
               held_.size() > kMaxReportBytes) {
      // No report begins here, but the last byte held may be the first of one.
      const bool restart = c == kSeparator;
      others.append(held_, 0, held_.size() - (restart ? 1 : 0));
      held_.assign(restart ? 1 : 0, kSeparator);
    }
  }
  return others;
}

std::vector<RankReport> ReportFilter::take_reports() { return std::exchange(reports_, {}); }

std::string ReportFilter::finish() { return std::exchange(held_, {}); }

namespace {

std::string name_of(const RankReport& report) {
  return fmt::format("rank {} on host {} (pid {})", report.rank, report.host, report.pid);
}

}  // namespace

std::string describe_end(const RankReport& report) {
  const std::string who = name_of(report);
  if (report.killed_by == 0) {
    return fmt::format("{} exited with code {}", who, report.exit_code);
  }
  return fmt::format("{} was killed by signal {}", who, name_of_signal(report.killed_by));
}

std::string describe_silent_end(const RankReport& start, std::string_view reason) {
  return fmt::format("{} ended without a word: {}", name_of(start), reason);
}

std::string name_of_signal(int number) {
  const char* const name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("{}", number) : fmt::format("{} (SIG{})", number, name);
}

}  // namespace bluefog::bfrun
