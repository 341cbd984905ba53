#include "topology/schedule.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "topology/mixing/step_graph.hpp"

namespace bluefog {
namespace {

constexpr std::size_t kMaxPlansKept = 8'192;

class CycleSource final : public Schedule::Source {
 public:
  explicit CycleSource(std::vector<MixingMatrix> matrices) : matrices_(std::move(matrices)) {}

  [[nodiscard]] int size() const override { return matrices_.front().size(); }
  [[nodiscard]] std::int64_t period_steps() const override {
    return static_cast<std::int64_t>(matrices_.size());
  }
  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override {
    return matrices_[phase];
  }
  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override {
    return matrices_[phase].plan_for(rank);
  }

 private:
  std::vector<MixingMatrix> matrices_;
};

}  // namespace

struct Schedule::State {
  using Key = std::pair<int, std::int64_t>;

  /// The plans' graphs keep it.
  std::shared_ptr<const Source> source;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<const NeighborPlan>> plans;
  /// The graphs of steps that the source says nothing of.
  std::map<std::int64_t, std::shared_ptr<const StepGraph>> graphs;

  /// Makes a plan. Under the mutex.
  [[nodiscard]] std::shared_ptr<const NeighborPlan> make_plan(int rank, std::int64_t phase);
};

std::shared_ptr<const NeighborPlan> Schedule::State::make_plan(int rank, std::int64_t phase) {
  NeighborPlan plan = source->plan_for(rank, phase);
  if (!plan.step) {
    auto& graph = graphs[phase];
    if (!graph) {
      graph = std::make_shared<const StepGraph>(
          [from = source, phase](int other) { return links_of(from->plan_for(other, phase)); });
    }
    plan.step = graph;
    if (graphs.size() > kMaxPlansKept) {
      graphs.clear();
    }
  }
  return std::make_shared<const NeighborPlan>(std::move(plan));
}

Schedule::Schedule(std::unique_ptr<const Source> source) : state_(std::make_shared<State>()) {
  state_->source = std::move(source);
}

int Schedule::size() const noexcept { return state_->source->size(); }

std::int64_t Schedule::period_steps() const noexcept { return state_->source->period_steps(); }

MixingMatrix Schedule::mixing_matrix(std::int64_t step) const {
  if (step < 0) {
    throw InvalidArgument(fmt::format("schedule: step is {}, expected at least 0", step));
  }
  return state_->source->mixing_matrix(step % period_steps());
}

std::shared_ptr<const NeighborPlan> Schedule::plan_for(int rank, std::int64_t step) const {
  if (rank < 0 || rank >= size()) {
    throw InvalidArgument(
        fmt::format("schedule: asked for rank {}, expected 0 to {}", rank, size() - 1));
  }
  if (step < 0) {
    throw InvalidArgument(
        fmt::format("schedule: step is {} on rank {}, expected at least 0", step, rank));
  }
  const std::int64_t phase = step % period_steps();
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->plans.find({rank, phase});
  if (found != state_->plans.end()) {
    return found->second;
  }
  auto plan = state_->make_plan(rank, phase);
  if (state_->plans.size() < kMaxPlansKept) {
    state_->plans.emplace(State::Key{rank, phase}, plan);
  }
  return plan;
}

namespace topology {

Schedule static_schedule(MixingMatrix matrix) { return cycle({std::move(matrix)}); }

Schedule cycle(std::vector<MixingMatrix> matrices) {
  if (matrices.empty()) {
    throw InvalidArgument("schedule: expected at least one matrix, got none");
  }
  for (const MixingMatrix& matrix : matrices) {
    if (matrix.size() != matrices.front().size()) {
      throw InvalidArgument(fmt::format("schedule: matrices of {} and {} ranks",
                                        matrices.front().size(), matrix.size()));
    }
  }
  return Schedule(std::make_unique<CycleSource>(std::move(matrices)));
}

Schedule one_peer_exponential(int size) {
  if (size < 1) {
    throw InvalidArgument(
        fmt::format("one-peer exponential schedule: size is {}, expected at least 1", size));
  }
  if (size == 1) {
    return static_schedule(MixingMatrix::identity(1));
  }
  std::vector<MixingMatrix> matrices;
  for (std::int64_t distance = 1; distance < size; distance *= 2) {
    const int offset = static_cast<int>(size - distance);
    matrices.push_back(
        MixingMatrix::from_pattern({.shape = {size}, .entries = {{0, 0.5}, {offset, 0.5}}}));
  }
  return cycle(std::move(matrices));
}

}  // namespace topology
}  // namespace bluefog
