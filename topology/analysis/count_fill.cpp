#include <Eigen/OrderingMethods>
#include <vector>

#include "topology/analysis/symmetric_extreme.hpp"

namespace bluefog::topology::detail {

std::int64_t count_fill(const SparseMatrix& matrix, std::int64_t limit) {
  Eigen::PermutationMatrix<Eigen::Dynamic, Eigen::Dynamic, int> order;
  Eigen::AMDOrdering<int>()(matrix, order);
  const auto& new_to_old = order.indices();
  std::vector<int> old_to_new(matrix.cols());
  for (int k = 0; k < matrix.cols(); ++k) {
    old_to_new[new_to_old[k]] = k;
  }

  // Each row of the factor is a set of paths in the elimination tree; walk
  // them all, building the tree on the way.
  std::vector<int> parent(matrix.cols(), -1);
  std::vector<int> seen(matrix.cols(), -1);
  std::int64_t count = matrix.cols();
  for (int k = 0; k < matrix.cols(); ++k) {
    seen[k] = k;
    for (SparseMatrix::InnerIterator entry(matrix, new_to_old[k]); entry; ++entry) {
      for (int i = old_to_new[entry.row()]; i < k && seen[i] != k; i = parent[i]) {
        if (parent[i] == -1) {
          parent[i] = k;
        }
        seen[i] = k;
        if (++count > limit) {
          return count;
        }
      }
    }
  }
  return count;
}

}  // namespace bluefog::topology::detail
