#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optimizers/bucket.hpp"
#include "optimizers/buckets/left_values.hpp"

namespace bluefog::optimizers {

/// The parameters of an algorithm whose carried values belong to those that its last step left
/// (`AlgorithmRow::bound_to_values`): tells whether the caller has set some to others since.
/// Cost: as of `LeftValues`, each step and each question reads the parameters once.
class BoundValues {
 public:
  /// @param buckets outlive this object.
  explicit BoundValues(const std::vector<Bucket>& buckets);

  /// A step has left its values. Without effect once a parameter was found set.
  void note();

  /// The name of a parameter that was set since `note`, the same one until `forget`; nothing where
  /// none was, or no step has been made.
  [[nodiscard]] std::optional<std::string> first_set();

  /// Whether the parameters hold what `note` has seen.
  [[nodiscard]] bool hold() { return is_noted_ && !first_set(); }

  /// The next step is a first one.
  void forget();

 private:
  const std::vector<Bucket>* buckets_;
  std::vector<LeftValues> left_;
  bool is_noted_ = false;
  std::optional<std::string> set_;
};

}  // namespace bluefog::optimizers
