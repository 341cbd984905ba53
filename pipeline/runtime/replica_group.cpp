#include "pipeline/runtime/replica_group.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "optimizers/buckets/bucket_memory.hpp"
#include "topology/mixing_matrix.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::pipeline {
namespace {

/// The plans that are kept; a schedule of a longer period makes them anew.
constexpr std::int64_t kMostPlans = 64;

Schedule schedule_over(int replicas, const PipelineOptions& options) {
  Schedule schedule = options.make_schedule
                          ? options.make_schedule(replicas)
                          : topology::static_schedule(topology::exponential(replicas));
  if (schedule.size() != replicas) {
    throw InvalidArgument(
        fmt::format("Pipeline: expected a schedule of {} replicas, found one of {} ranks", replicas,
                    schedule.size()));
  }
  return schedule;
}

/// The matrix of all ranks in which the replicas of each stage average as W says, and stages do not
/// hear each other.
MixingMatrix blocks_of(const MixingMatrix& weights, const PipelineLayout& layout) {
  std::vector<std::vector<WeightedRank>> rows(static_cast<std::size_t>(layout.size()));
  for (int rank = 0; rank < layout.size(); ++rank) {
    for (WeightedRank entry : weights.row(layout.replica_of(rank))) {
      entry.rank = layout.rank_of(entry.rank, layout.stage_of(rank));
      rows[static_cast<std::size_t>(rank)].push_back(entry);
    }
  }
  return MixingMatrix::from_rows(std::move(rows));
}

}  // namespace

ReplicaGroup::ReplicaGroup(Context& context, const PipelineLayout& layout,
                           const PipelineOptions& options, const optimizers::NamedTensors& trained)
    : context_(context),
      layout_(layout),
      sync_(options.replicas),
      trained_(trained),
      ranks_(layout.ranks_of_stage(layout.stage_of(context.rank()))) {
  if (layout.replicas() == 1) {
    return;
  }
  // Averages of parameters begin together, so that one bucket serves.
  const std::int64_t bytes =
      sums() ? options.bucket_bytes : std::numeric_limits<std::int64_t>::max();
  buckets_ = optimizers::make_buckets(trained, bytes, bytes, optimizers::bucket_memory(context));
  calls_ = static_cast<std::size_t>(most_buckets());
  if (!sums()) {
    schedule_ = schedule_over(layout.replicas(), options);
    return;
  }
  for (optimizers::Bucket& bucket : buckets_) {
    bucket.add_gradients();
  }
  listen();
}

ReplicaGroup::~ReplicaGroup() {
  try {
    for (std::size_t i = 0; !buckets_.empty() && i < trained_.size(); ++i) {
      at::Tensor& parameter = trained_[i].tensor;
      parameter.mutable_grad().reset();
      parameter.set_data(parameter.detach().clone());
    }
  } catch (const std::exception&) {  // out of memory: they keep the bucket's
  }
}

bool ReplicaGroup::sums() const {
  return layout_.replicas() > 1 && sync_ == ReplicaSync::Gradients;
}

std::int64_t ReplicaGroup::most_buckets() const {
  auto most = std::max<std::int64_t>(std::ssize(buckets_), 1);
  ops::allreduce(context_, {.data = &most, .count = 1, .dtype = Dtype::Int64},
                 {.name = "numbers of buckets", .reduction = ops::Reduction::Max});
  return most;
}

// A hook that is somebody else's is left to them: then sums begin behind the backward pass.
void ReplicaGroup::listen() {
  if (!optimizers::why_not_hooked(trained_).empty()) {
    return;
  }
  readiness_.emplace(buckets_);
  hooks_.emplace(
      buckets_,
      optimizers::GradientListener{
          .on_ready =
              [this](const optimizers::GradientArrival& arrival) { note_gradient(arrival); },
          .on_compiled = [] {}},
      optimizers::RethrowInBackward{});
}

void ReplicaGroup::begin_step(std::int64_t rows) {
  rows_ = rows;
  is_last_backward_ = false;
  summing_.clear();
  sums_began_.reset();
  for (optimizers::Bucket& bucket : buckets_) {
    if (!bucket.is_bound()) {
      bucket.rebind();
    }
  }
  if (!sums()) {
    for (optimizers::NamedTensor& item : trained_) {
      item.tensor.mutable_grad().reset();
    }
    return;
  }
  for (optimizers::Bucket& bucket : buckets_) {
    bucket.zero_gradients();
    for (std::size_t i = 0; i < bucket.segments().size(); ++i) {
      bucket.segments()[i].parameter.mutable_grad() = bucket.gradient(i);
    }
  }
}

void ReplicaGroup::begin_last_backward() {
  if (readiness_) {
    readiness_->clear();
    is_last_backward_ = true;
    is_late_ = false;
  }
}

void ReplicaGroup::note_gradient(const optimizers::GradientArrival& arrival) {
  if (!is_last_backward_) {
    return;
  }
  if (arrival.bucket < summing_.size()) {
    throw StateError(fmt::format(
        "rank {}, Pipeline, parameter '{}': its gradient changed after its sum with the replicas "
        "had begun; expected layers whose backward pass comes to each parameter once (a reentrant "
        "checkpoint comes to it once more)",
        context_.rank(), buckets_[arrival.bucket].segments()[arrival.segment].name));
  }
  // What comes twice by a pass inside of another one may still change: nothing leaves before the end.
  is_late_ = is_late_ || arrival.is_inside_another_pass;
  readiness_->note(arrival.bucket, arrival.segment);
  while (!is_late_ && summing_.size() < buckets_.size() && readiness_->is_whole(summing_.size())) {
    begin_sum();
  }
}

// Of the next bucket, or of nothing where this rank has no further one.
void ReplicaGroup::begin_sum() {
  if (!sums_began_) {
    sums_began_ = Timeline::Clock::now();
  }
  const std::size_t next = summing_.size();
  summing_.push_back(ops::allreduce_nonblocking(
      context_, next < buckets_.size() ? buckets_[next].gradients() : BufferView{},
      {.name = fmt::format("gradients of {} rows", rows_),
       .reduction = ops::Reduction::Sum,
       .ranks = ranks_}));
}

std::optional<Timeline::Clock::time_point> ReplicaGroup::begin_sums(StepTraffic& traffic) {
  if (!sums()) {
    return std::nullopt;
  }
  is_last_backward_ = false;
  while (summing_.size() < calls_) {
    begin_sum();
  }
  for (const optimizers::Bucket& bucket : buckets_) {
    count(bucket.gradients(), traffic);
  }
  count_call(traffic);
  return sums_began_;
}

void ReplicaGroup::finish_sums() {
  for (const Work& work : summing_) {
    work.wait();
  }
  summing_.clear();
}

void ReplicaGroup::count(const BufferView& brought, StepTraffic& traffic) const {
  traffic.averaged_bytes += brought.count * static_cast<std::int64_t>(size_of(brought.dtype));
}

// Buckets of a step count as one synchronisation.
void ReplicaGroup::count_call(StepTraffic& traffic) const {
  for (const optimizers::NamedTensor& item : trained_) {
    traffic.averaged_parameters += item.tensor.numel();
  }
  const auto is_elsewhere = [this](int rank) {
    return !context_.machines().same_machine(rank, context_.rank());
  };
  traffic.machine_syncs += std::ranges::any_of(ranks_, is_elsewhere) ? 1 : 0;
}

BufferView ReplicaGroup::values(std::size_t i) const {
  return i < buckets_.size() ? buckets_[i].values() : BufferView{};
}

bool ReplicaGroup::averages_parameters() const {
  return layout_.replicas() > 1 && sync_ == ReplicaSync::Parameters;
}

void ReplicaGroup::average_parameters(std::int64_t round, StepTraffic& traffic) {
  for (std::size_t i = 0; i < calls_; ++i) {
    count(values(i), traffic);
    ops::neighbor_allreduce(context_, values(i), plan_of(round), {.name = "parameters"});
  }
  count_call(traffic);
  for (const optimizers::Bucket& bucket : buckets_) {
    bucket.note_change();
  }
}

void ReplicaGroup::average_exactly() {
  for (std::size_t i = 0; i < calls_; ++i) {
    ops::allreduce(context_, values(i), {.name = "parameters", .ranks = ranks_});
  }
  for (const optimizers::Bucket& bucket : buckets_) {
    bucket.note_change();
  }
}

std::shared_ptr<const NeighborPlan> ReplicaGroup::plan_of(std::int64_t round) {
  const std::int64_t phase = round % schedule_->period_steps();
  auto& plan = plans_[phase];
  if (!plan) {
    const MixingMatrix blocks = blocks_of(schedule_->mixing_matrix(phase), layout_);
    plan = std::make_shared<const NeighborPlan>(blocks.plan_for(context_.rank()));
  }
  const std::shared_ptr<const NeighborPlan> found = plan;
  if (static_cast<std::int64_t>(plans_.size()) > kMostPlans) {
    plans_.clear();
  }
  return found;
}

}  // namespace bluefog::pipeline
