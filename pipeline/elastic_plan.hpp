#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/freeze_schedule.hpp"
#include "pipeline/partition.hpp"

namespace bluefog::pipeline {

/// The stages of a pipeline, and how much of the model is frozen: what `Pipeline::rearrange` takes.
struct Arrangement {
  int stages = 1;  ///< K, which divides the number of ranks
  int frozen = 0;  ///< the first so many layers of the model are frozen

  /// Memberwise.
  friend bool operator==(const Arrangement&, const Arrangement&) = default;
};

/// The parts of an elastic run, for `ElasticPlan`.
struct ElasticOptions {
  double alpha = 1.0 / 3;                    ///< as `FreezeOptions::alpha`
  LastLayer last = LastLayer::StaysTrained;  ///< as `FreezeOptions::last`
  /// Layers of the model before the encoder's, which freeze with its first one.
  int embedding_layers = 0;
  int head_layers = 1;  ///< layers behind the encoder's, which never freeze
  bool freezes = true;  ///< AutoFreeze; without it nothing changes
  bool shrinks = true;  ///< AutoPipe: fewer stages when they suffice
};

/// The arrangements of a run, decision by decision (one an epoch, say): how deep to freeze, and how
/// many stages that leaves work for. The costliest stage stays at most what it was at the start.
///
/// A value, the same on all ranks that give it the same: every rank has its own. No communication.
/// Source: PipeTransformer, arXiv 2102.03161.
class ElasticPlan {
 public:
  /// @param costs of the model's layers, as `Pipeline::costs`.
  /// @param start the stages at the start, skips, slack and frozen share; `frozen` has to be 0.
  /// @throws InvalidArgument as `partition_layers` and `FreezeSchedule`; for frozen layers at the
  ///   start, and embedding and head that leave no layer.
  ElasticPlan(std::span<const double> costs, const PartitionOptions& start,
              const ElasticOptions& options = {});

  /// The next arrangement. @param gradient_norms of all layers of the model, as
  ///   `Pipeline::gradient_norms`; empty: by the bound alone.
  /// @throws InvalidArgument for norms of another number of layers, and as `FreezeSchedule`.
  Arrangement advance(std::span<const double> gradient_norms = {});

  /// The arrangement that `advance` gave last; at first that of the start.
  [[nodiscard]] const Arrangement& arrangement() const noexcept { return arrangement_; }
  /// The encoder's frozen layers.
  [[nodiscard]] int depth() const noexcept { return schedule_.depth(); }

 private:
  std::vector<double> costs_;
  PartitionOptions start_;
  ElasticOptions options_;
  FreezeSchedule schedule_;
  double limit_;
  Arrangement arrangement_;
};

}  // namespace bluefog::pipeline
