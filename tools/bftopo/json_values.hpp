#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/bftopo/subject.hpp"
#include "topology/spectral_gap.hpp"
#include "topology/topology_report.hpp"

namespace bluefog::bftopo {

using Json = nlohmann::ordered_json;

/// The value, or null.
template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Keys spectral_gap, norm_gap (null where not converged), their bounds, and gap_method; all null
/// without a gap.
[[nodiscard]] Json gap_json(const std::optional<topology::SpectralGap>& gap);

/// The object of `bftopo check --json`; docs/bftopo.md lists its keys.
/// @param problems what `problems_of` has found.
[[nodiscard]] Json report_json(const Subject& subject, const topology::TopologyReport& report,
                               const std::vector<std::string>& problems);

}  // namespace bluefog::bftopo
