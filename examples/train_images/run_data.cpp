#include "examples/train_images/run_data.hpp"

#include <algorithm>
#include <utility>

#include "examples/data/load.hpp"

namespace bluefog::examples {
namespace {

Shards make_shards(const TrainOptions& options, const ImageSet& train, int ranks) {
  return options.shards == ShardKind::Iid
             ? iid_shards(train.count(), ranks, options.seed)
             : dirichlet_shards(train.labels, ranks, options.alpha, options.seed);
}

std::int64_t count_steps(const TrainOptions& options, std::int64_t images, int ranks) {
  const std::int64_t whole = std::max<std::int64_t>(images / (options.batch_size * ranks), 1);
  return options.max_batches > 0 ? std::min(whole, options.max_batches) : whole;
}

}  // namespace

RunData load_run_data(const TrainOptions& options, int rank, int ranks) {
  TrainTest data = load_image_data(options.data);
  const PixelStatistics statistics = pixel_statistics(data.train);
  Shards shards = make_shards(options, data.train, ranks);
  const std::int64_t steps = count_steps(options, data.train.count(), ranks);
  return {ImageDataset(std::move(data.train), statistics),
          ImageDataset(std::move(data.test), statistics),
          std::move(shards[static_cast<std::size_t>(rank)]), steps};
}

}  // namespace bluefog::examples
