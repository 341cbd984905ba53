#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "bluefog_cpp/base/trace/trace.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "optimizers/bucket.hpp"
#include "optimizers/buckets/bucket_readiness.hpp"
#include "optimizers/buckets/gradient_hooks.hpp"
#include "optimizers/parameter.hpp"
#include "pipeline/pipeline.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/schedule.hpp"

namespace bluefog::pipeline {

/// The replicas of this rank's stage. Every rank of the context makes its calls, each among its own
/// stage's replicas: calls of the context, whose groups have sizes of their own. Nothing is called
/// where there is one replica.
///
/// Gradients are summed bucket by bucket, in the order in which a backward pass finishes them: a
/// bucket leaves as soon as the last backward pass of a step has finished its gradients, while the
/// pass goes on. All ranks make as many calls, those with fewer buckets some of nothing.
class ReplicaGroup {
 public:
  /// Collective. Moves the parameters into buckets, where there are several replicas.
  /// @param trained this rank's; may be empty.
  ReplicaGroup(Context& context, const PipelineLayout& layout, const PipelineOptions& options,
               const optimizers::NamedTensors& trained);
  /// Gives the parameters memory of their own again.
  ~ReplicaGroup();
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;

  /// Clears the gradients, before the passes of a step.
  /// @param rows of all pipelines, compared between ranks.
  void begin_step(std::int64_t rows);
  /// The step's last backward pass begins: buckets leave as they are finished.
  void begin_last_backward();
  /// Begins the sums that have not begun. @return when the first one did; nothing where there is
  ///   nothing to sum.
  std::optional<Timeline::Clock::time_point> begin_sums(StepTraffic& traffic);
  /// Waits until gradients are sums.
  void finish_sums();
  /// Whether a step ends with `average_parameters`.
  [[nodiscard]] bool averages_parameters() const;
  /// The parameters become W(round)'s averages.
  void average_parameters(std::int64_t round, StepTraffic& traffic);
  /// The parameters become their mean.
  void average_exactly();

 private:
  [[nodiscard]] std::shared_ptr<const NeighborPlan> plan_of(std::int64_t round);
  [[nodiscard]] bool sums() const;
  void listen();
  void note_gradient(const optimizers::GradientArrival& arrival);
  void begin_sum();
  [[nodiscard]] std::int64_t most_buckets() const;
  /// The values of bucket `i`; nothing where this rank has fewer.
  [[nodiscard]] BufferView values(std::size_t i) const;
  void count(const BufferView& brought, StepTraffic& traffic) const;
  void count_call(StepTraffic& traffic) const;

  Context& context_;
  PipelineLayout layout_;
  ReplicaSync sync_;
  optimizers::NamedTensors trained_;
  std::vector<int> ranks_;
  /// Empty where there is one replica, or nothing is trained.
  std::vector<optimizers::Bucket> buckets_;
  std::size_t calls_ = 0;  ///< of a step: the most buckets that a rank has
  std::optional<optimizers::BucketReadiness> readiness_;
  std::optional<optimizers::GradientHooks> hooks_;
  std::vector<Work> summing_;
  std::optional<Timeline::Clock::time_point> sums_began_;
  std::int64_t rows_ = 0;
  bool is_last_backward_ = false;
  bool is_late_ = false;
  std::optional<Schedule> schedule_;
  std::map<std::int64_t, std::shared_ptr<const NeighborPlan>> plans_;
};

}  // namespace bluefog::pipeline
