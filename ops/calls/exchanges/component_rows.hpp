#pragma once

#include <bit>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bluefog_cpp/engine/exchange_spec.hpp"
#include "topology/mixing/step_component.hpp"

namespace bluefog::ops {

/// The weights that one rank gives in a step: to its own value, to those it hears by rising sender,
/// and to its value by rising reader.
struct RankStepWeights {
  double self = 1.0;
  std::span<const double> sources{};
  std::span<const double> destinations{};
};

/// A sum over values of ranks of a component, and all ranks whose result it is.
struct ResultRow {
  struct Term {
    std::size_t place = 0;
    double weight = 1.0;

    /// Whether it gives the same bits: a weight of −0 and one of 0 do not.
    friend bool operator==(const Term& a, const Term& b) noexcept {
      return a.place == b.place &&
             std::bit_cast<std::uint64_t>(a.weight) == std::bit_cast<std::uint64_t>(b.weight);
    }
  };
  /// By rising place, as messages are combined.
  boost::container::small_vector<Term, 1 + kInlineNeighbors> terms{};
  /// The places of the ranks that get it, rising.
  boost::container::small_vector<std::size_t, 1 + kInlineNeighbors> results{};
};
using ResultRows = boost::container::small_vector<ResultRow, kInlineNeighbors>;

/// The rows of a component, each once: ranks with equal rows share one.
/// @param weights by place.
[[nodiscard]] ResultRows result_rows(const StepComponent& component,
                                     std::span<const RankStepWeights> weights);

}  // namespace bluefog::ops
