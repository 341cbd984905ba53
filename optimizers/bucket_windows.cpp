#include "optimizers/bucket_windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/one_sided/window_gone.hpp"

namespace bluefog::optimizers {
namespace {

constexpr std::int64_t kRoundsLookedAt = 1024;

/// All whom `rank` hears or sends to in some round.
NeighborPlan neighbors_in(const Schedule& schedule, int rank) {
  const int size = schedule.size();
  NeighborPlan plan = NeighborPlan::alone(rank, size);
  std::set<int> sources;
  std::set<int> destinations;
  if (schedule.period_steps() > kRoundsLookedAt) {
    for (int other = 0; other < size; ++other) {
      if (other != rank) {
        sources.insert(other);
        destinations.insert(other);
      }
    }
  }
  for (std::int64_t round = 0; round < std::min(schedule.period_steps(), kRoundsLookedAt);
       ++round) {
    const auto part = schedule.plan_for(rank, round);
    for (const WeightedRank& source : part->sources) {
      sources.insert(source.rank);
    }
    for (const WeightedRank& destination : part->destinations) {
      destinations.insert(destination.rank);
    }
  }
  for (const int source : sources) {
    plan.sources.push_back({.rank = source});
  }
  for (const int destination : destinations) {
    plan.destinations.push_back({.rank = destination});
  }
  return plan;
}

void check_among(const NeighborPlan& neighbors, const std::vector<WeightedRank>& some,
                 const std::vector<WeightedRank>& all, std::string_view role) {
  for (const WeightedRank& entry : some) {
    if (!std::ranges::binary_search(all, entry.rank, {}, &WeightedRank::rank)) {
      throw InvalidArgument(fmt::format(
          "rank {}: expected {} that the schedule has in some round, because each needs "
          "a window's buffer, found rank {}",
          neighbors.rank, role, entry.rank));
    }
  }
}

}  // namespace

BucketWindows::BucketWindows(Context& context, const std::vector<BufferView>& tensors,
                             const std::vector<std::string>& names, const Schedule& neighbors,
                             const ops::WindowOptions& options)
    : context_(context),
      neighbors_(neighbors_in(neighbors, context.rank())),
      is_gone_(static_cast<std::size_t>(context.size()), false) {
  for (std::size_t b = 0; b < tensors.size(); ++b) {
    ops::WindowOptions own = options;
    own.name = names[b];
    windows_.push_back(ops::Window::create(context, tensors[b], neighbors_, own));
  }
  put_options_.destinations.emplace(1);
  get_options_.sources.emplace(1);
  get_options_.exclusion = ops::Exclusion::Mutex;
  average_options_.weights.emplace();
  collect_options_.weights.emplace();
  collect_options_.weights->sources = neighbors_.sources;
  collect_options_.reset = ops::BufferReset::Zero;
}

void BucketWindows::check(const NeighborPlan& plan) const {
  check_among(neighbors_, plan.sources, neighbors_.sources, "sources");
  check_among(neighbors_, plan.destinations, neighbors_.destinations, "destinations");
}

template <typename Call>
double BucketWindows::for_each_present(const std::vector<WeightedRank>& ranks, Call&& call) {
  double weight = 0.0;
  for (const WeightedRank& entry : ranks) {
    if (is_gone_[static_cast<std::size_t>(entry.rank)]) {
      continue;
    }
    try {
      call(entry);
      weight += entry.weight;
    } catch (const WindowGone& gone) {
      is_gone_[static_cast<std::size_t>(entry.rank)] = true;
      context_.log().info(fmt::format("rank {} has finished and is left out", gone.rank()));
    }
  }
  return weight;
}

void BucketWindows::put(std::size_t b, const NeighborPlan& plan) {
  ops::Window& window = *windows_[b];
  for_each_present(plan.destinations, [&](const WeightedRank& destination) {
    put_options_.destinations->front() = destination;
    window.put(window.tensor(), put_options_);
  });
}

double BucketWindows::accumulate(std::size_t b, const NeighborPlan& plan) {
  ops::Window& window = *windows_[b];
  return for_each_present(plan.destinations, [&](const WeightedRank& destination) {
    put_options_.destinations->front() = destination;
    window.accumulate(window.tensor(), put_options_);
  });
}

void BucketWindows::publish(std::size_t b, const BufferView& values) {
  const auto lock = windows_[b]->lock_self();
  copy_bytes(static_cast<std::byte*>(windows_[b]->tensor().data),
             static_cast<const std::byte*>(values.data), values.bytes());
}

void BucketWindows::get(std::size_t b, const NeighborPlan& plan) {
  for_each_present(plan.sources, [&](const WeightedRank& source) {
    get_options_.sources->front() = {.rank = source.rank};
    windows_[b]->get(get_options_);
  });
}

void BucketWindows::average(std::size_t b, const NeighborPlan& plan, const BufferView& output) {
  average_options_.weights->self_weight = plan.self_weight;
  average_options_.weights->sources = plan.sources;
  average_options_.output = output;
  windows_[b]->update(average_options_);
}

void BucketWindows::collect(std::size_t b, double kept) {
  collect_options_.weights->self_weight = kept;
  windows_[b]->update(collect_options_);
}

bool BucketWindows::has_news(std::size_t b) const {
  return std::ranges::any_of(windows_[b]->versions(),
                             [](const auto& version) { return version.second > 0; });
}

}  // namespace bluefog::optimizers
