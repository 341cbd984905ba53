#include "tools/bftopo/problems.hpp"

#include <fmt/format.h>

#include <cmath>

namespace bluefog::bftopo {
namespace {

/// Sums this near to 1 make an average, as they do for optimizers.
constexpr double kSumTolerance = 1e-6;
/// A gap that connected graphs of up to `kMostRanksOfGap` ranks do not reach, but for rounding.
constexpr double kNoGap = 1e-12;
constexpr int kMostRanksOfGap = 100'000;

std::string words_for(const char* what, const topology::StepSum& worst,
                      const topology::TopologyReport& report) {
  const std::string step =
      report.period_steps > 1 ? fmt::format(" in step {}", worst.step) : std::string();
  return fmt::format("{}s do not sum to 1: that of rank {} sums to {:.9g}{}", what, worst.rank,
                     worst.sum, step);
}

std::string problem_of_sums(const Options& options, const topology::TopologyReport& report) {
  if (options.push_sum) {
    return report.column_error > kSumTolerance ? words_for("column", report.worst_column, report)
                                               : "";
  }
  if (!(report.row_error > kSumTolerance)) {
    return "";
  }
  return words_for("row", report.worst_row, report) +
         (report.column_error <= kSumTolerance && !report.has_negative_weight
              ? "; columns do: push-sum can use it (--push-sum)"
              : "");
}

}  // namespace

std::vector<std::string> problems_of(const Options& options, const Subject& subject,
                                     const topology::TopologyReport& report) {
  std::vector<std::string> problems;
  if (const std::string sums = problem_of_sums(options, report); !sums.empty()) {
    problems.push_back(sums);
  }
  if (options.push_sum && report.has_negative_weight) {
    problems.emplace_back("some weights are negative, and push-sum has no use for those");
  }
  if (report.edge_mismatches.value_or(0) > 0) {
    problems.push_back(
        fmt::format("{} edges are known to one of their ends alone", *report.edge_mismatches));
  }
  if (report.period_gap && std::isinf(report.period_gap->lambda2.lower)) {
    problems.emplace_back("weights are so large that values overflow");
  }
  if (report.parts.value_or(1) > 1) {
    problems.push_back(
        fmt::format("the ranks fall into {} parts that never hear of each other: rank {} is in "
                    "another one than rank {}",
                    *report.parts, report.first_apart, subject.rank_of(0)));
  } else if (report.period_gap && report.size > 1 && report.size <= kMostRanksOfGap &&
             report.period_gap->lambda2.converged && report.period_gap->lambda2.value < kNoGap) {
    problems.push_back(
        fmt::format("differences between ranks do not die out: the spectral gap of a period is "
                    "{:.3g}",
                    report.period_gap->lambda2.value));
  }
  return problems;
}

}  // namespace bluefog::bftopo
