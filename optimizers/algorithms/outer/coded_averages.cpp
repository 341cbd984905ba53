#include "optimizers/algorithms/outer/coded_averages.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>
#include <span>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

CodedAverages::CodedAverages(Context& context, std::vector<Bucket>& buckets,
                             std::shared_ptr<const ops::Compression> compression,
                             std::optional<double> decay)
    : Algorithm(buckets),
      context_(context),
      compression_(std::move(compression)),
      plain_(context, values_of(buckets), names_of(buckets)),
      works_(buckets.size()),
      has_begun_(at::zeros({1}, at::kLong)) {
  for (const Bucket& bucket : buckets) {
    means_.emplace_back(context, bucket, bucket.flat(), bucket.name(), compression_, decay,
                        sizeof(std::uint64_t));
  }
}

bool CodedAverages::codes() const { return has_begun_.item<std::int64_t>() != 0; }

void CodedAverages::step(const Round& round, const StepBucket& step_bucket) {
  if (!codes()) {
    const std::size_t later = decoding_calls(*compression_);
    run_round(context_, later, [&](std::size_t& issued) {
      plain_.run([&](std::size_t b) { step_bucket(buckets_[b]); });
      issued = later;
      try_decoding(context_, *compression_, fmt::format("outer step of round {}", round.index),
                   [] {});
    });
    has_begun_.fill_(1);
    note_changes(buckets_);
    return;
  }
  try {
    exchange(step_bucket);
    try_decoding(context_, *compression_, fmt::format("outer step of round {}", round.index), [&] {
      for (const CodedMean& mean : means_) {
        mean.try_decoding(scratch_);
      }
    });
    check_alike(round);
  } catch (...) {
    for (CodedMean& mean : means_) {
      mean.forget();
    }
    throw;
  }
  for (CodedMean& mean : means_) {
    mean.finish(scratch_);
  }
  note_changes(buckets_);
}

void CodedAverages::exchange(const StepBucket& step_bucket) {
  std::uint64_t number = 0;
  const std::size_t calls = buckets_.size() + decoding_calls(*compression_);
  run_overlapped_round(context_, calls, works_, [&](std::size_t& issued) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      step_bucket(buckets_[b]);
      number = b == 0 && number_ ? number_() : number;
      means_[b].encode(std::as_bytes(std::span(&number, 1)), scratch_);
      ++issued;
      works_[b] = means_[b].send();
    }
  });
}

// Ranks that went on from different models would stay apart, without a word.
void CodedAverages::check_alike(const Round& round) const {
  const auto number_of = [this](int rank) {
    std::uint64_t number = 0;
    std::memcpy(&number, means_.front().note_of(rank).data(), sizeof number);
    return number;
  };
  for (int rank = 0; rank < context_.size(); ++rank) {
    if (number_of(rank) != number_of(0)) {
      throw StateError(fmt::format(
          "rank {}, outer step of round {}: expected all ranks to have made the same outer steps, "
          "whose codes are of differences from one model, found that rank {} goes on from another "
          "one than rank 0: a round before has failed on some ranks alone, or a rank alone has "
          "restarted or read other state; `restart` on all ranks goes on from here",
          context_.rank(), round.index, rank));
    }
  }
}

NamedTensors CodedAverages::state() const {
  std::vector<at::Tensor> left;
  for (const CodedMean& mean : means_) {
    if (mean.left().defined()) {
      left.push_back(mean.left());
    }
  }
  NamedTensors state = named(left, "error");
  state.push_back({"codes begun", has_begun_});
  return state;
}

void CodedAverages::restart() {
  for (const auto& [name, tensor] : state()) {
    tensor.zero_();
  }
}

}  // namespace bluefog::optimizers
