#include "optimizers/buckets/windows/bucket_windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {
namespace {

constexpr std::int64_t kRoundsLookedAt = 1024;

/// The ranks that `rank` hears or sends to in some round.
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
  put_options_.destinations.emplace();
  get_options_.sources.emplace();
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

// One call serves the ranks in order, up to one that has gone; another call serves those behind it.
template <typename Call>
double BucketWindows::for_present(const std::vector<WeightedRank>& ranks,
                                  std::vector<WeightedRank>& present, Call&& call) {
  const auto is_gone = [this](const WeightedRank& entry) {
    return is_gone_[static_cast<std::size_t>(entry.rank)];
  };
  present.clear();
  double weight = 0.0;
  auto next = ranks.begin();
  const auto leave_out = [&](int rank) {
    note_gone(rank);
    present.erase(std::ranges::find(present, rank, &WeightedRank::rank), present.end());
    next = std::next(std::ranges::find(ranks, rank, &WeightedRank::rank));
  };
  while (next != ranks.end()) {
    present.clear();
    std::copy_if(next, ranks.end(), std::back_inserter(present), std::not_fn(is_gone));
    next = ranks.end();
    try {
      if (!present.empty()) {
        call();
      }
    } catch (const WindowGoneError& gone) {
      leave_out(gone.rank());
    } catch (const PeerHasLeft& gone) {  // over a network, after its window
      leave_out(gone.rank());
    }
    for (const WeightedRank& served : present) {
      weight += served.weight;
    }
  }
  return weight;
}

ops::WindowStream BucketWindows::stream_of(std::size_t b) const {
  return on_current_stream(windows_[b]->tensor()).stream;
}

void BucketWindows::note_gone(int rank) {
  is_gone_[static_cast<std::size_t>(rank)] = true;
  context_.log().info(fmt::format("rank {} has finished and is left out", rank));
}

std::int64_t BucketWindows::stamp_of(int rank) const { return windows_.back()->stamp_of(rank); }

std::int64_t BucketWindows::latest_stamp() const {
  std::int64_t latest = 0;
  for (const WeightedRank& source : neighbors_.sources) {
    const std::int64_t stamp = stamp_of(source.rank);
    latest = stamp == kAway ? latest : std::max(latest, stamp);
  }
  return latest;
}

void BucketWindows::announce_absence() { windows_.back()->announce(kAway); }

bool BucketWindows::wait_for(int rank, std::int64_t stamp,
                             std::optional<std::chrono::nanoseconds> longest) {
  if (is_gone(rank)) {
    return true;
  }
  try {
    return windows_.back()->wait_for({{.rank = rank}}, stamp, longest);
  } catch (const WindowGoneError&) {
    note_gone(rank);
  } catch (const PeerHasLeft&) {  // over a network, after its window
    note_gone(rank);
  }
  return true;
}

void BucketWindows::put(std::size_t b, const NeighborPlan& plan, std::int64_t stamp) {
  put_options_.stamp = stamp;
  const BufferView tensor = on_current_stream(windows_[b]->tensor());
  for_present(plan.destinations, *put_options_.destinations,
              [&] { windows_[b]->put(tensor, put_options_); });
}

double BucketWindows::accumulate(std::size_t b, const NeighborPlan& plan) {
  const BufferView tensor = on_current_stream(windows_[b]->tensor());
  return for_present(plan.destinations, *put_options_.destinations,
                     [&] { windows_[b]->accumulate(tensor, put_options_); });
}

void BucketWindows::set(std::size_t b, const BufferView& values) {
  const BufferView& tensor = windows_[b]->tensor();
  if (tensor.device.kind != DeviceKind::Cpu) {
    DeviceChannel& device = *context_.core().device();
    const gpu::DeviceScope scope = device.enter();
    device.cuda().copy(tensor.data, values.data, values.bytes(), values.stream);
    return;
  }
  const auto lock = windows_[b]->lock_self();
  copy_bytes(static_cast<std::byte*>(tensor.data), static_cast<const std::byte*>(values.data),
             values.bytes());
}

void BucketWindows::publish(std::size_t b) { windows_[b]->publish(stream_of(b)); }

void BucketWindows::get(std::size_t b, const NeighborPlan& plan) {
  get_options_.stream = stream_of(b);
  for_present(plan.sources, *get_options_.sources, [&] {
    for (WeightedRank& source : *get_options_.sources) {
      source.weight = 1.0;  // the average has it
    }
    windows_[b]->get(get_options_);
  });
  if (get_options_.sources->empty()) {
    publish(b);
  }
}

void BucketWindows::average(std::size_t b, const NeighborPlan& plan, const BufferView& output) {
  average_options_.weights->self_weight = plan.self_weight;
  average_options_.weights->sources = plan.sources;
  average_options_.output = output;
  average_options_.stream = stream_of(b);
  windows_[b]->update(average_options_);
}

void BucketWindows::collect(std::size_t b, double kept) {
  collect_options_.weights->self_weight = kept;
  collect_options_.stream = stream_of(b);
  windows_[b]->update(collect_options_);
}

bool BucketWindows::has_news(std::size_t b) const {
  return std::ranges::any_of(windows_[b]->versions(),
                             [](const auto& version) { return version.second > 0; });
}

void BucketWindows::fill(std::size_t b, ops::WindowFill fill) {
  windows_[b]->fill(fill, stream_of(b));
}

}  // namespace bluefog::optimizers
