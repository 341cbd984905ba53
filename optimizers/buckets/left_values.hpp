#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// Copies of some of a bucket's parameters, for the time in which a call writes over all of them.
class KeptValues {
 public:
  explicit KeptValues(const Bucket& bucket) : bucket_(&bucket) {}

  void keep(std::size_t segment);
  void keep_all();
  void put_back() const;

 private:
  const Bucket* bucket_;
  std::vector<std::pair<std::size_t, at::Tensor>> values_;
};

/// The values that a step has left in a bucket's parameters, by which those are known that the
/// caller has set since.
///
/// On the CPU it goes by the values' bytes, whatever wrote them: version counters miss what is
/// written through `data`, NumPy or DLPack. On a device, where reading them would make the host
/// wait, it goes by version counters.
/// Cost: `note` and `is_set` each read the parameters once; 8 bytes for each of them.
class LeftValues {
 public:
  /// @param bucket outlives this object.
  explicit LeftValues(const Bucket& bucket)
      : bucket_(&bucket), marks_(bucket.segments().size(), 0) {}

  /// The parameters have the values that a step leaves.
  void note();

  /// Whether the parameter was set to another value, or given other memory, since.
  [[nodiscard]] bool is_set(std::size_t segment) const;

 private:
  [[nodiscard]] std::uint64_t mark_of(const Segment& segment) const;

  const Bucket* bucket_;
  std::vector<std::uint64_t> marks_;
};

}  // namespace bluefog::optimizers
