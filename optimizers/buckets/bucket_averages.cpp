#include "optimizers/bucket_averages.hpp"

#include "ops/hierarchical_neighbor_allreduce.hpp"

namespace bluefog::optimizers {

const ops::NeighborAllreduceOptions& NeighborAverages::options_for(const Round& round,
                                                                   std::size_t b) {
  // All buckets have the same plan: one check serves the round. But by a check of their own those go
  // in place that are long enough, since ranks of a host then know who hears whom in the whole step.
  constexpr std::size_t kLong = std::size_t{128} << 10U;
  const bool gains = round.averaging == Averaging::Neighbors && buffers_[b].bytes() >= kLong &&
                     context_.hosts().machine_count() == 1;
  options_[b].check = b == 0 || gains ? round.check : ops::PlanCheck::Trusted;
  return options_[b];
}

Work NeighborAverages::start(const Round& round, std::size_t b) {
  if (round.averaging == Averaging::Machines) {
    const auto& options = options_for(round, b);
    return ops::hierarchical_neighbor_allreduce_nonblocking(
        context_, on_current_stream(buffers_[b]), round.plan,
        {.name = options.name, .check = options.check});
  }
  if (round.averaging == Averaging::Everybody) {
    ops::AllreduceOptions options;
    options.name = options_[b].name;
    return ops::allreduce_nonblocking(context_, on_current_stream(buffers_[b]), options);
  }
  return ops::neighbor_allreduce_nonblocking(context_, on_current_stream(buffers_[b]), round.plan,
                                             options_for(round, b));
}

Work NeighborAverages::start(const Round& round, std::size_t b, const BufferView& output) {
  return ops::neighbor_allreduce_nonblocking(context_, on_current_stream(buffers_[b]),
                                             on_current_stream(output), round.plan,
                                             options_for(round, b));
}

Work NeighborAverages::average(const Round& round, std::size_t b) {
  if (round.averaging != Averaging::Neighbors) {
    return start(round, b);
  }
  ops::neighbor_allreduce(context_, on_current_stream(buffers_[b]), round.plan,
                          options_for(round, b));
  return {};
}

std::vector<BufferView> values_of(const std::vector<Bucket>& buckets) {
  std::vector<BufferView> views;
  views.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    views.push_back(bucket.values());
  }
  return views;
}

std::vector<std::string> names_of(const std::vector<Bucket>& buckets) {
  std::vector<std::string> names;
  names.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    names.push_back(bucket.name());
  }
  return names;
}

void note_changes(const std::vector<Bucket>& buckets) {
  for (const Bucket& bucket : buckets) {
    bucket.note_change();
  }
}

}  // namespace bluefog::optimizers
