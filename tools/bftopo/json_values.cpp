#include "tools/bftopo/json_values.hpp"

#include <string>

namespace bluefog::bftopo {
namespace {

void add_estimate(Json& json, const std::string& key, const topology::GapEstimate& estimate) {
  json[key] = estimate.converged ? Json(estimate.value) : Json(nullptr);
  json[key + "_lower"] = estimate.lower;
  json[key + "_upper"] = estimate.upper;
}

}  // namespace

Json gap_json(const std::optional<topology::SpectralGap>& gap) {
  Json json;
  if (!gap) {
    return {{"spectral_gap", nullptr}, {"norm_gap", nullptr}, {"gap_method", nullptr}};
  }
  add_estimate(json, "spectral_gap", gap->lambda2);
  add_estimate(json, "norm_gap", gap->norm);
  json["gap_method"] = std::string(topology::name_of(gap->method));
  return json;
}

Json report_json(const Subject& subject, const topology::TopologyReport& report,
                 const std::vector<std::string>& problems) {
  Json json{{"topology", subject.name},
            {"n", report.size},
            {"without", subject.lost},
            {"period", report.period_steps},
            {"steps_checked", report.steps_checked},
            {"row_error", report.row_error},
            {"column_error", report.column_error},
            {"has_negative_weight", report.has_negative_weight},
            {"edge_mismatches", or_null(report.edge_mismatches)},
            {"parts", or_null(report.parts)}};
  json["period_residual"] =
      report.period_residual ? Json(*report.period_residual) : or_null(report.probed_residual);
  json["period_residual_method"] = report.period_residual   ? Json("product")
                                   : report.probed_residual ? Json("probes")
                                                            : Json(nullptr);
  json.update(gap_json(report.period_gap));
  json.update(
      Json{{"max_degree", report.max_degree()},
           {"max_in_degree", report.max_in_degree},
           {"max_out_degree", report.max_out_degree},
           {"messages_per_step", report.messages_per_step},
           {"max_messages_per_step", report.max_messages_per_step},
           {"bytes_per_rank_per_step", report.bytes_per_rank_per_step},
           {"max_bytes_per_rank_per_step", report.max_bytes_per_rank_per_step},
           {"bytes_between_machines_per_step", or_null(report.bytes_between_machines_per_step)},
           {"problems", problems}});
  return json;
}

}  // namespace bluefog::bftopo
