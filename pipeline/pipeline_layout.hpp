#pragma once

#include <vector>

#include "pipeline/partition.hpp"

namespace bluefog::pipeline {

/// The places of n ranks in pipelines of K stages: n / K replicas, each of ranks that follow each
/// other. Rank r has stage r mod K of replica ⌊r / K⌋. A value.
class PipelineLayout {
 public:
  /// @param size the number of ranks. @param stages K.
  /// @throws InvalidArgument unless K divides the number of ranks.
  PipelineLayout(int size, int stages);

  /// n.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// K.
  [[nodiscard]] int stages() const noexcept { return stages_; }
  /// n / K.
  [[nodiscard]] int replicas() const noexcept { return size_ / stages_; }

  /// The stage of `rank`; so for the others. @throws InvalidArgument for no rank of these.
  [[nodiscard]] int stage_of(int rank) const;
  /// The pipeline of `rank`.
  [[nodiscard]] int replica_of(int rank) const;
  /// The rank of a stage in a pipeline. @throws InvalidArgument where there is none.
  [[nodiscard]] int rank_of(int replica, int stage) const;
  /// The ranks with that stage, rising: its replicas.
  [[nodiscard]] std::vector<int> ranks_of_stage(int stage) const;

  /// Memberwise.
  friend bool operator==(const PipelineLayout&, const PipelineLayout&) = default;

 private:
  int size_;
  int stages_;
};

/// The places of layers: which rank has which stage, and which stage has which layers.
struct Placement {
  PipelineLayout layout;  ///< ranks and stages
  Partition partition;    ///< stages and layers; as many stages
};

/// A layer that a rank gets from another one.
struct LayerMove {
  int layer = 0;  ///< which
  int from = 0;   ///< the rank that has had it, and may keep it
  int to = 0;     ///< the rank that has it from now on

  /// Memberwise.
  friend bool operator==(const LayerMove&, const LayerMove&) = default;
};

/// The layers that change their place from `before` to `after`, by rising layer and receiver. A rank
/// gets a layer that it has not had from the pipeline that it was in: that one has had all layers,
/// whatever replicas may differ in.
/// @throws InvalidArgument for other numbers of ranks or layers.
[[nodiscard]] std::vector<LayerMove> layer_moves(const Placement& before, const Placement& after);

}  // namespace bluefog::pipeline
