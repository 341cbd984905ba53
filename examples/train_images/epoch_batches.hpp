#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "examples/data/batch_sampler.hpp"
#include "examples/train_images/options.hpp"
#include "examples/train_images/run_data.hpp"
#include "optimizers/elastic_sampler.hpp"

namespace bluefog::examples {

/// Whether ranks may be lost, and others join, in the middle of a run.
[[nodiscard]] bool is_elastic(const Context& context);

/// The batches of one rank, epoch by epoch: of a shard of its own, or, where ranks come and go, dealt
/// to the ranks that there are, so that they see all images of an epoch together.
class EpochBatches {
 public:
  /// All ranks make theirs with the same options.
  EpochBatches(const Context& context, const TrainOptions& options, const RunData& data);

  /// The epoch that is under way; on a process that has joined that of the others.
  [[nodiscard]] std::int64_t epoch() const noexcept;
  /// The epoch that comes; one that has begun already goes on.
  void begin(std::int64_t epoch);
  /// The images of the next step; none where the epoch is over.
  [[nodiscard]] std::vector<std::int64_t> next();
  /// Whether the batch that `next` has returned last is the epoch's last one, as far as is known.
  [[nodiscard]] bool is_over() const;
  /// The steps of this epoch that have been made, and how many it has, as far as is known.
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  [[nodiscard]] std::int64_t steps() const;

  /// Collective over the ranks of `now`, which have gone on without one that was lost, or with a new
  /// one.
  void deal_anew(Context& now);

 private:
  std::int64_t batch_size_;
  std::int64_t steps_per_epoch_;
  BatchSampler own_;
  std::optional<optimizers::ElasticSampler> dealt_;
  std::int64_t epoch_ = 0;
  std::int64_t step_ = 0;
};

}  // namespace bluefog::examples
