#include "examples/data/batch_sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

std::int64_t count_batches(std::int64_t samples, std::int64_t batch_size, LastBatch last_batch) {
  const std::int64_t whole = samples / batch_size;
  const bool has_rest = samples % batch_size != 0;
  const bool keeps_rest = has_rest && (last_batch == LastBatch::Keep || whole == 0);
  return whole + (keeps_rest ? 1 : 0);
}

}  // namespace

BatchSampler::BatchSampler(std::vector<std::int64_t> shard, std::int64_t batch_size,
                           std::uint64_t seed, LastBatch last_batch)
    : shard_(std::move(shard)), batch_size_(batch_size), seed_(seed) {
  if (batch_size < 1) {
    throw InvalidArgument(
        fmt::format("BatchSampler: expected a batch size of at least 1, found {}", batch_size));
  }
  if (shard_.empty()) {
    throw InvalidArgument("BatchSampler: expected at least one sample in the shard, found none");
  }
  batches_per_pass_ = count_batches(std::ssize(shard_), batch_size, last_batch);
}

std::span<const std::int64_t> BatchSampler::batch(std::int64_t step) {
  if (step < 0) {
    throw InvalidArgument(fmt::format("BatchSampler: expected a step >= 0, found {}", step));
  }
  shuffle_for(step / batches_per_pass_);
  const std::int64_t begin = step % batches_per_pass_ * batch_size_;
  const std::int64_t length = std::min(batch_size_, std::ssize(order_) - begin);
  return std::span(order_).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(length));
}

void BatchSampler::shuffle_for(std::int64_t pass) {
  if (pass == pass_) {
    return;
  }
  order_ = shard_;
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto high = [](std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); };
  const auto turn = static_cast<std::uint64_t>(pass);
  std::seed_seq mixed{low(seed_), high(seed_), low(turn), high(turn)};
  std::mt19937_64 random(mixed);
  std::shuffle(order_.begin(), order_.end(), random);
  pass_ = pass;
}

}  // namespace bluefog::examples
