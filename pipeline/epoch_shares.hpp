#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bluefog::pipeline {

/// The samples of one step of all pipelines.
struct GlobalBatch {
  std::int64_t rows = 0;              ///< of all pipelines together
  std::vector<std::int64_t> samples;  ///< those of one pipeline, in their order
};

/// Deals the samples of an epoch to pipelines, step by step: each is seen once, whatever becomes of
/// the number of pipelines meanwhile, because what a step takes depends on the steps before alone.
/// Steps have the same rows in all, so that they are the same steps for any number of pipelines.
///
/// A value: every rank has its own, and makes the same calls. No communication.
class EpochShares {
 public:
  /// @param samples in an epoch, at least 1. @param global_batch rows of a step, at least 1; the
  ///   last step of an epoch has what is left. @param seed of the order, the same on all ranks.
  /// @throws InvalidArgument for fewer.
  EpochShares(std::int64_t samples, std::int64_t global_batch, std::uint64_t seed);

  /// Begins `epoch`, in an order of its own (the same on every machine).
  /// @throws InvalidArgument for a negative number.
  void begin_epoch(std::int64_t epoch);

  /// The number of samples that the epoch has left.
  [[nodiscard]] std::int64_t left() const noexcept;

  /// The next step, dealt to `replicas` pipelines in turn, pieces of the order that follow each
  /// other; those of `replica`, which may be none where there are fewer rows than pipelines.
  /// @throws StateError at the end of the epoch. @throws InvalidArgument for no replica of these.
  [[nodiscard]] GlobalBatch next(int replicas, int replica);

 private:
  std::int64_t global_batch_;
  std::uint64_t seed_;
  std::vector<std::int64_t> order_;
  std::size_t position_ = 0;
};

}  // namespace bluefog::pipeline
