#pragma once

#include <optional>

#include "topology/mixing/sparse_rows.hpp"
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
};

}  // namespace bluefog
