#pragma once

#include <optional>

#include "topology/mixing/sparse_rows.hpp"
#include "topology/mixing/step_graph.hpp"
#include "topology/mixing_matrix.hpp"

namespace bluefog {

/// The part of a `MixingMatrix` that its copies share.
struct MixingMatrix::Storage {
  int size = 0;
  /// The pattern and its transpose are the whole matrix when set; otherwise the lists are.
  std::optional<TranslationPattern> pattern;
  std::optional<TranslationPattern> pattern_transposed;
  SparseRows rows;
  SparseRows columns;
  /// Of all plans.
  StepGraph step{[this](int rank) { return links_of(rank); }};

  /// The ranks that `rank` hears and those that hear it.
  [[nodiscard]] StepLinks links_of(int rank) const;
};

}  // namespace bluefog
