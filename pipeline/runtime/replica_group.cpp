#include "pipeline/runtime/replica_group.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
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
  if (!trained.empty()) {
    bucket_.emplace(0, trained, optimizers::bucket_memory(context));
  }
  if (sync_ == ReplicaSync::Parameters) {
    schedule_ = schedule_over(layout.replicas(), options);
  } else if (bucket_) {
    bucket_->add_gradients();
  }
}

ReplicaGroup::~ReplicaGroup() {
  for (std::size_t i = 0; bucket_ && i < trained_.size(); ++i) {
    at::Tensor& parameter = trained_[i].tensor;
    parameter.mutable_grad().reset();
    parameter.set_data(parameter.detach().clone());
  }
}

void ReplicaGroup::begin_step() {
  if (bucket_ && !bucket_->is_bound()) {
    bucket_->rebind();
  }
  const bool is_summed = bucket_ && sync_ == ReplicaSync::Gradients;
  if (is_summed) {
    bucket_->zero_gradients();
    for (std::size_t i = 0; i < bucket_->segments().size(); ++i) {
      bucket_->segments()[i].parameter.mutable_grad() = bucket_->gradient(i);
    }
    return;
  }
  for (optimizers::NamedTensor& item : trained_) {
    item.tensor.mutable_grad().reset();
  }
}

std::optional<Work> ReplicaGroup::begin_sums(std::int64_t rows, StepTraffic& traffic) {
  if (layout_.replicas() == 1 || sync_ != ReplicaSync::Gradients) {
    return std::nullopt;
  }
  BufferView brought = bucket_ ? bucket_->gradients() : BufferView{};
  count(brought, traffic);
  return ops::allreduce_nonblocking(context_, std::move(brought),
                                    {.name = fmt::format("gradients of {} rows", rows),
                                     .reduction = ops::Reduction::Sum,
                                     .ranks = ranks_});
}

void ReplicaGroup::count(const BufferView& brought, StepTraffic& traffic) const {
  traffic.averaged_bytes += brought.count * static_cast<std::int64_t>(size_of(brought.dtype));
  for (const optimizers::NamedTensor& item : trained_) {
    traffic.averaged_parameters += item.tensor.numel();
  }
  const auto is_elsewhere = [this](int rank) {
    return !context_.machines().same_machine(rank, context_.rank());
  };
  traffic.machine_syncs += std::ranges::any_of(ranks_, is_elsewhere) ? 1 : 0;
}

BufferView ReplicaGroup::values() const { return bucket_ ? bucket_->values() : BufferView{}; }

bool ReplicaGroup::averages_parameters() const {
  return layout_.replicas() > 1 && sync_ == ReplicaSync::Parameters;
}

void ReplicaGroup::average_parameters(std::int64_t round, StepTraffic& traffic) {
  count(values(), traffic);
  ops::neighbor_allreduce(context_, values(), plan_of(round), {.name = "parameters"});
  if (bucket_) {
    bucket_->note_change();
  }
}

void ReplicaGroup::average_exactly() {
  if (layout_.replicas() == 1) {
    return;
  }
  ops::allreduce(context_, values(), {.name = "parameters", .ranks = ranks_});
  if (bucket_) {
    bucket_->note_change();
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
