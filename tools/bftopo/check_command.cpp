#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/bftopo/commands.hpp"
#include "tools/bftopo/json_values.hpp"
#include "tools/bftopo/problems.hpp"

namespace bluefog::bftopo {
namespace {

std::string residual_words(const topology::TopologyReport& report) {
  if (report.period_residual) {
    return fmt::format("{:.3g}", *report.period_residual);
  }
  if (report.probed_residual) {
    return fmt::format("{:.3g} by random vectors (the product is too large to form)",
                       *report.probed_residual);
  }
  return fmt::format("unknown (only {} steps were looked at)", report.steps_checked);
}

std::string gap_words(const std::optional<topology::SpectralGap>& gap) {
  if (!gap) {
    return "unknown";
  }
  const topology::GapEstimate& estimate = gap->lambda2;
  if (!estimate.converged) {
    return fmt::format("{:.6g} … {:.6g}, not converged", estimate.lower, estimate.upper);
  }
  return fmt::format("{:.6g} ({})", estimate.value, topology::name_of(gap->method));
}

template <typename T>
std::string words_or_unknown(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "unknown";
}

std::string line(std::string_view name, const std::string& value) {
  return fmt::format("  {:<26}{}\n", name, value);
}

}  // namespace

Answer check_answer(const Options& options, const Subject& subject) {
  const topology::TopologyReport report = report_of(options, subject);
  const std::vector<std::string> problems = problems_of(options, subject, report);
  const int exit_code = problems.empty() ? 0 : 1;
  if (options.json) {
    return {report_json(subject, report, problems).dump(2) + "\n", exit_code};
  }
  std::string text = fmt::format("{}: {}\n", subject.name, subject.description);
  text += line("ranks", fmt::format("{}", report.size));
  if (!subject.lost.empty()) {
    text += line("without",
                 fmt::format("{} of {}", fmt::join(subject.lost, ", "), subject.size_before));
  }
  text += line("period", fmt::format("{} step(s)", report.period_steps));
  text += line("row error", fmt::format("{:.3g}", report.row_error));
  text += line("column error", fmt::format("{:.3g}", report.column_error));
  if (report.has_negative_weight) {
    text += line("weights", "some are negative");
  }
  text += line("one-sided edges", words_or_unknown(report.edge_mismatches));
  text += line("period residual", residual_words(report));
  text += line("spectral gap of a period", gap_words(report.period_gap));
  text += line("largest degree", fmt::format("{}", report.max_degree()));
  text += line("messages per step", fmt::format("{:.6g}, at most {}", report.messages_per_step,
                                                report.max_messages_per_step));
  text += line("bytes per rank and step",
               fmt::format("{:.6g}, at most {}", report.bytes_per_rank_per_step,
                           report.max_bytes_per_rank_per_step));
  if (options.family_options.local_size > 1) {
    text += line("bytes between machines",
                 words_or_unknown(report.bytes_between_machines_per_step) + " per step");
  }
  for (const std::string& problem : problems) {
    text += line("broken", problem);
  }
  return {text, exit_code};
}

}  // namespace bluefog::bftopo
