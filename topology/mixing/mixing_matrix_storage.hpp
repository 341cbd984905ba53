#pragma once

#include <optional>

#include "topology/mixing/sparse_rows.hpp"
#include "topology/mixing_matrix.hpp"

namespace bluefog {

/// What a `MixingMatrix` shares between its copies.
struct MixingMatrix::Storage {
  int size = 0;
  /// Where set, it and its transpose stand for everything; else the lists do.
  std::optional<TranslationPattern> pattern;
  std::optional<TranslationPattern> pattern_transposed;
  SparseRows rows;
  SparseRows columns;
};

}  // namespace bluefog
