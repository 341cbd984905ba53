#include "ops/calls/exchanges/component_rows.hpp"

#include <algorithm>

namespace bluefog::ops {

ResultRows result_rows(const StepComponent& component, std::span<const RankStepWeights> weights) {
  ResultRows rows;
  rows.reserve(component.size());
  for (std::size_t place = 0; place < component.size(); ++place) {
    ResultRow& row = rows.emplace_back();  // if it is a new one, it stays
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
    const auto last = rows.end() - 1;
    const auto equal = std::find_if(rows.begin(), last,
                                    [&](const ResultRow& one) { return one.terms == row.terms; });
    equal->results.push_back(place);
    if (equal != last) {
      rows.pop_back();
    }
  }
  return rows;
}

}  // namespace bluefog::ops
