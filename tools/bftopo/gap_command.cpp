#include <fmt/format.h>

#include "tools/bftopo/commands.hpp"
#include "tools/bftopo/json_values.hpp"

namespace bluefog::bftopo {
namespace {

std::string estimate_line(std::string_view name, const topology::GapEstimate& estimate) {
  const std::string value =
      estimate.converged ? fmt::format("{:.12g}", estimate.value) : "not converged";
  return fmt::format("  {:<12}{}, within {:.12g} … {:.12g}\n", name, value, estimate.lower,
                     estimate.upper);
}

}  // namespace

std::string gap_text(const Options& options, const Subject& subject) {
  const topology::TopologyReport report = report_of(options, subject);
  if (options.json) {
    Json json{{"topology", subject.name},
              {"n", report.size},
              {"without", subject.lost},
              {"period", report.period_steps}};
    json.update(gap_json(report.period_gap));
    return json.dump(2) + "\n";
  }
  std::string text = fmt::format("{}, {}, over a period of {} step(s)\n", subject.name,
                                 subject.count_words(), report.period_steps);
  if (!report.period_gap) {
    return text + (report.steps_checked < report.period_steps
                       ? "  unknown: the period is too long (a shorter --period?)\n"
                       : "  unknown: the product of the steps is too large to form, or neither "
                         "rows nor columns sum to 1\n");
  }
  text += estimate_line("1 - |λ₂|", report.period_gap->lambda2);
  text += estimate_line("1 - ‖W-J‖₂", report.period_gap->norm);
  return text + fmt::format("  method      {}\n", topology::name_of(report.period_gap->method));
}

}  // namespace bluefog::bftopo
