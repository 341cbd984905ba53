#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bluefog::examples {

/// The fate of the samples that do not fill a whole batch at the end of a pass.
enum class LastBatch {
  Drop,  ///< left out of this pass; the next shuffle picks others
  Keep,  ///< a smaller batch ends the pass
};

/// Cuts a shard into batches, in an order that is shuffled anew on each pass over the shard.
///
/// `batch(step)` is a function of the constructor's arguments and `step` alone, so that a resumed
/// run sees the batches that an uninterrupted one would have seen. Ranks whose shards differ in
/// size may all take the same number of steps: a small shard begins its next pass earlier. Not
/// thread-safe.
class BatchSampler {
 public:
  /// A shard smaller than `batch_size` is one batch per pass under either policy.
  /// @throws InvalidArgument if `shard` is empty or `batch_size` < 1.
  BatchSampler(std::vector<std::int64_t> shard, std::int64_t batch_size, std::uint64_t seed,
               LastBatch last_batch = LastBatch::Drop);

  /// Batches in one pass over the shard; at least 1.
  [[nodiscard]] std::int64_t batches_per_pass() const noexcept { return batches_per_pass_; }

  /// The samples of batch `step` >= 0, counted over all passes; valid until the next call.
  [[nodiscard]] std::span<const std::int64_t> batch(std::int64_t step);

 private:
  void shuffle_for(std::int64_t pass);

  std::vector<std::int64_t> shard_;
  std::vector<std::int64_t> order_;
  std::int64_t batch_size_;
  std::int64_t batches_per_pass_ = 0;
  std::uint64_t seed_;
  std::int64_t pass_ = -1;
};

}  // namespace bluefog::examples
