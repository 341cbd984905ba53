#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ops/compression.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithms/codes/coded_mean.hpp"
#include "optimizers/algorithms/codes/decoding.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// Local steps, then the mean over all ranks of what they leave: in the first round the mean as it
/// is, by which ranks have the same, in later ones that of codes with error feedback (`CodedMean`).
/// Rounds of codes are of differences from something that all ranks have; a number of it goes
/// along, and ranks that found others raise StateError, until all `restart`.
///
/// Cost per rank and round: in the first one an allreduce for each bucket, then an all-gather of
/// codes; a copy of the model for what is left.
class CodedAverages final : public Algorithm {
 public:
  /// @param context, buckets outlive this object. @param decay as that of `CodedMean`.
  CodedAverages(Context& context, std::vector<Bucket>& buckets,
                std::shared_ptr<const ops::Compression> compression, std::optional<double> decay);

  /// The number that is to be equal on all ranks, called once a round after its first local step.
  void agree_on(std::function<std::uint64_t()> number) { number_ = std::move(number); }
  /// Whether the next round sends codes.
  [[nodiscard]] bool codes() const;

  [[nodiscard]] bool averages_with_neighbors() const noexcept override { return false; }
  [[nodiscard]] std::size_t calls_due() const override {
    // As many in the first round, which has no codes: whether a rank has begun is its own.
    return buckets_.size() + decoding_calls(*compression_);
  }
  void step(const Round& round, const StepBucket& step_bucket) override;
  /// "error of bucket 0", …, "codes begun".
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  void exchange(const StepBucket& step_bucket);
  void check_alike(const Round& round) const;

  Context& context_;
  std::shared_ptr<const ops::Compression> compression_;
  GlobalAverages plain_;
  std::vector<CodedMean> means_;
  CodedMean::Scratch scratch_;
  std::vector<Work> works_;
  std::function<std::uint64_t()> number_;
  /// Whether ranks have averaged: part of the state, so a tensor.
  at::Tensor has_begun_;
};

}  // namespace bluefog::optimizers
