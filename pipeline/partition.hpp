#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bluefog::pipeline {

/// The share of a trained layer's cost that a frozen one has, unless told otherwise: no gradients,
/// no optimizer state.
inline constexpr double kFrozenShare = 1.0 / 6;

/// A layer whose output a later layer reads beside the one that follows it: a residual.
struct SkipConnection {
  int from = 0;  ///< the layer that puts it out
  int to = 0;    ///< the layer that reads it, behind `from`
};

/// How `partition_layers` divides.
struct PartitionOptions {
  int stages = 1;                       ///< K, at least 1
  int frozen = 0;                       ///< the first so many layers are frozen
  std::vector<SkipConnection> skips{};  ///< between layers; no stage ends inside of one
  /// How far a stage may exceed the mean, in units of it; up to six times that where it pays.
  double slack = 0.05;
  /// The share of its cost that a frozen layer counts, above 0: with 1 stages stay as they are,
  /// whatever is frozen.
  double frozen_share = kFrozenShare;
};

/// The layers of each stage: a row of layers 0, 1, … in as many pieces. A value.
class Partition {
 public:
  /// @param begins the first layer of each stage, rising from 0. @param layers of all stages.
  /// @throws InvalidArgument for a stage without layers.
  Partition(std::vector<int> begins, int layers);

  /// The number of stages, at least 1.
  [[nodiscard]] int stages() const noexcept { return static_cast<int>(begins_.size()); }
  /// The number of layers of all stages.
  [[nodiscard]] int layers() const noexcept { return layers_; }
  /// The first layer of `stage`. @throws InvalidArgument for no stage of these.
  [[nodiscard]] int begin(int stage) const;
  /// The layer behind the last one of `stage`. @throws InvalidArgument for no stage of these.
  [[nodiscard]] int end(int stage) const;
  /// The stage that has `layer`. @throws InvalidArgument for no layer of these.
  [[nodiscard]] int stage_of(int layer) const;

  /// Memberwise.
  friend bool operator==(const Partition&, const Partition&) = default;

 private:
  std::vector<int> begins_;
  int layers_;
};

/// The division of layers into stages of about equal cost. Stage by stage: with m the cost that is
/// left over the stages that are left, a stage takes layers while its sum stays at most
/// m (1 + slack), at least one, and leaves one for each stage behind it; the last takes the rest.
/// Where two to six times the slack makes the costliest stage cheaper, that is the slack.
/// A frozen layer counts `frozen_share` of its cost. Layers that a skip connection ties together
/// stay together, and layers of cost 0 stay with the one before (the first ones with the next one).
/// @param costs of the layers, 0 or more: numbers of parameters, or seconds. Same everywhere.
/// @throws InvalidArgument for more stages than such groups of layers, a cost that is negative or
///   no number, costs of which all are 0, a skip connection that does not lead to a later layer,
///   more frozen layers than there are, a negative slack, and another share.
/// Source: AutoPipe of PipeTransformer, arXiv 2102.03161, section 3.2, whose "variance" is a slack.
[[nodiscard]] Partition partition_layers(std::span<const double> costs,
                                         const PartitionOptions& options);

/// The cost of the costliest stage, frozen layers by their share.
/// @throws InvalidArgument where costs and partition are of different numbers of layers.
[[nodiscard]] double largest_stage(std::span<const double> costs, int frozen,
                                   const Partition& partition, double frozen_share = kFrozenShare);

/// The number of stages that suffices: `options.stages`, halved as long as it is even and the
/// costliest stage of the halved number stays at most `limit` (that of the start, say).
/// @throws InvalidArgument as `partition_layers`.
[[nodiscard]] int fewest_stages(std::span<const double> costs, const PartitionOptions& options,
                                double limit);

/// The number of micro-batches to begin with: 1 for one stage, else 16 or twice the stages,
/// whichever is more (2K at K = 8, 4K at 4, 8K at 2). @throws InvalidArgument for no stage.
[[nodiscard]] int initial_micro_batches(int stages);

/// The rows of each micro-batch: min(rows, wanted) of them, none empty, the first ones with one
/// more where `rows` is not divisible. @throws InvalidArgument for negative rows or none wanted.
[[nodiscard]] std::vector<std::int64_t> micro_batch_rows(std::int64_t rows, int wanted);

}  // namespace bluefog::pipeline
