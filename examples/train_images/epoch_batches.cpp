#include "examples/train_images/epoch_batches.hpp"

#include "bluefog_cpp/settings.hpp"

namespace bluefog::examples {

bool is_elastic(const Context& context) {
  return context.settings().on_failure == OnFailure::Shrink;
}

EpochBatches::EpochBatches(const Context& context, const TrainOptions& options, const RunData& data)
    : batch_size_(options.batch_size),
      steps_per_epoch_(data.steps_per_epoch),
      own_(data.shard, options.batch_size,
           options.seed + static_cast<std::uint64_t>(context.rank())) {
  if (is_elastic(context)) {
    dealt_.emplace(data.train.count(), context,
                   optimizers::ElasticSamplerOptions{.seed = options.seed});
  }
}

std::int64_t EpochBatches::epoch() const noexcept { return dealt_ ? dealt_->epoch() : epoch_; }

void EpochBatches::begin(std::int64_t epoch) {
  epoch_ = epoch;
  step_ = 0;
  if (dealt_) {
    dealt_->begin(epoch);
    step_ = dealt_->drawn() / batch_size_;
  }
}

std::vector<std::int64_t> EpochBatches::next() {
  if (dealt_) {
    auto batch = dealt_->next(batch_size_);
    step_ += batch.empty() ? 0 : 1;
    return batch;
  }
  if (step_ == steps_per_epoch_) {
    return {};
  }
  const auto batch = own_.batch(epoch_ * steps_per_epoch_ + step_);
  ++step_;
  return {batch.begin(), batch.end()};
}

bool EpochBatches::is_over() const {
  return dealt_ ? dealt_->drawn() == dealt_->size() : step_ == steps_per_epoch_;
}

std::int64_t EpochBatches::steps() const {
  return dealt_ ? step_ + (dealt_->size() - dealt_->drawn() + batch_size_ - 1) / batch_size_
                : steps_per_epoch_;
}

void EpochBatches::deal_anew(Context& now) {
  if (dealt_) {
    dealt_->deal_anew(now);
  }
}

}  // namespace bluefog::examples
