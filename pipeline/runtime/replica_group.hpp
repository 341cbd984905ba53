#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "optimizers/bucket.hpp"
#include "optimizers/parameter.hpp"
#include "pipeline/pipeline.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/schedule.hpp"

namespace bluefog::pipeline {

/// The replicas of this rank's stage. Every rank of the context makes its calls, each among its own
/// stage's replicas: one call of the context, whose groups have sizes of their own. Nothing is
/// called where there is one replica.
class ReplicaGroup {
 public:
  /// Moves the parameters into one piece of memory, where there are several replicas.
  /// @param trained this rank's; may be empty.
  ReplicaGroup(Context& context, const PipelineLayout& layout, const PipelineOptions& options,
               const optimizers::NamedTensors& trained);
  /// Gives the parameters memory of their own again.
  ~ReplicaGroup();
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;

  /// Clears the gradients, before the passes of a step.
  void begin_step();
  /// Begins the sums of gradients, which they have become when the result's wait ends; nothing where
  /// there is nothing to sum. @param rows of all pipelines, compared between ranks.
  [[nodiscard]] std::optional<Work> begin_sums(std::int64_t rows, StepTraffic& traffic);
  /// Whether a step ends with `average_parameters`.
  [[nodiscard]] bool averages_parameters() const;
  /// The parameters become W(round)'s averages.
  void average_parameters(std::int64_t round, StepTraffic& traffic);
  /// The parameters become their mean.
  void average_exactly();

 private:
  [[nodiscard]] std::shared_ptr<const NeighborPlan> plan_of(std::int64_t round);
  [[nodiscard]] BufferView values() const;
  void count(const BufferView& brought, StepTraffic& traffic) const;

  Context& context_;
  PipelineLayout layout_;
  ReplicaSync sync_;
  optimizers::NamedTensors trained_;
  std::vector<int> ranks_;
  /// Empty where there is one replica, or nothing is trained.
  std::optional<optimizers::Bucket> bucket_;
  std::optional<Schedule> schedule_;
  std::map<std::int64_t, std::shared_ptr<const NeighborPlan>> plans_;
};

}  // namespace bluefog::pipeline
