#include "ops/calls/exchanges/component_rows.hpp"

#include <algorithm>
#include <utility>

namespace bluefog::ops {

std::vector<ResultRow> result_rows(const StepComponent& component,
                                   std::span<const RankStepWeights> weights) {
  std::vector<ResultRow> rows;
  rows.reserve(component.size());
  for (std::size_t place = 0; place < component.size(); ++place) {
    ResultRow row;
    const auto heard = component.heard(place);
    bool has_own = false;
    const auto add_own = [&] {
      row.terms.push_back({.place = place, .weight = weights[place].self});
      has_own = true;
    };
    for (std::size_t i = 0; i < heard.size(); ++i) {
      const auto [from, number] = heard[i];
      if (!has_own && from > place) {
        add_own();
      }
      row.terms.push_back(
          {.place = from,
           .weight = weights[place].sources[i] * weights[from].destinations[number]});
    }
    if (!has_own) {
      add_own();
    }
    const auto equal =
        std::ranges::find_if(rows, [&](const ResultRow& one) { return one.terms == row.terms; });
    if (equal == rows.end()) {
      row.results.push_back(place);
      rows.push_back(std::move(row));
    } else {
      equal->results.push_back(place);
    }
  }
  return rows;
}

}  // namespace bluefog::ops
