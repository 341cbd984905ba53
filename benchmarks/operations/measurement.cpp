#include "benchmarks/operations/measurement.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "benchmarks/operations/buffers.hpp"
#include "benchmarks/rounds.hpp"
#include "ops/collectives.hpp"

namespace bluefog::benchmarks {
namespace {

/// Messages of up to so many bytes are timed in batches of so many calls.
constexpr std::int64_t kShortBytes = 4096;
constexpr int kShortBatch = 32;

/// The times of a contestant's batches on this rank.
struct Batches {
  std::vector<double> begins_us;
  std::vector<double> ends_us;
  std::vector<double> cpu_us;

  void clear() {
    begins_us.clear();
    ends_us.clear();
    cpu_us.clear();
  }
};

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Collective: of each batch the time from the first rank's begin to the last one's end, where ranks
/// share a clock: one that has no core yet begins late, and the others' time does not say so where
/// they do not wait for it. Between hosts that of the slowest rank.
std::vector<double> spans(Context& context, const Batches& batches) {
  const std::size_t count = batches.begins_us.size();
  if (context.hosts().machine_count() > 1) {
    std::vector<double> own(count);
    std::ranges::transform(batches.ends_us, batches.begins_us, own.begin(), std::minus());
    return slowest(context, own);
  }
  std::vector<double> before(count);
  std::ranges::transform(batches.begins_us, before.begin(), std::negate());
  const std::vector<double> first = slowest(context, before);
  std::vector<double> all = slowest(context, batches.ends_us);
  std::ranges::transform(all, first, all.begin(), std::plus());
  return all;
}

/// The time of a call: the means of `batches` batches each, of `calls` calls.
std::vector<double> means(const std::vector<double>& times, int batches, int calls) {
  std::vector<double> found;
  for (std::size_t i = 0; i < times.size(); i += static_cast<std::size_t>(batches)) {
    const auto begin = times.begin() + static_cast<std::ptrdiff_t>(i);
    found.push_back(std::accumulate(begin, begin + batches, 0.0) / (batches * calls));
  }
  return found;
}

}  // namespace

std::vector<Measurement> measure(const Setting& setting, const std::vector<Contestant>& contestants,
                                 double seconds, std::chrono::duration<double> pause) {
  Context& context = setting.context;
  Buffers own_buffers(setting, false);
  std::optional<Buffers> shared_buffers;
  if (std::ranges::any_of(contestants, &Contestant::takes_shared_buffers)) {
    shared_buffers.emplace(setting, true);
  }
  const std::int64_t bytes = setting.count * static_cast<std::int64_t>(size_of(setting.dtype));
  const int batch = bytes <= kShortBytes ? kShortBatch : 1;
  const auto time_batch = [&](const Contestant& contestant, int calls, Batches& times) {
    Buffers& buffers = contestant.takes_shared_buffers ? *shared_buffers : own_buffers;
    BufferView buffer = buffers.next();
    if (contestant.prepare) {
      contestant.prepare(buffer);
    }
    std::this_thread::sleep_for(pause);
    ops::barrier(context);
    const double cpu_us = process_cpu_us();
    const auto call = [&] {
      if (contestant.copy) {
        contestant.copy(buffers.other(), buffer);
      } else {
        contestant.call(buffer);
      }
    };
    times.begins_us.push_back(now_us());
    call();
    for (int i = 1; i < calls; ++i) {
      buffer = buffers.next();
      call();
    }
    times.ends_us.push_back(now_us());
    times.cpu_us.push_back(process_cpu_us() - cpu_us);
  };
  // Long calls are timed one by one, as many as a period of the contestant's has.
  const auto batches_of = [&](const Contestant& contestant) {
    return batch > 1 ? 1 : contestant.period;
  };
  const auto calls_of = [&](const Contestant& contestant) {
    return batch > 1 ? (batch + contestant.period - 1) / contestant.period * contestant.period : 1;
  };
  std::vector<Batches> times(contestants.size());
  // Every round has an order of its own, the same on all ranks: a call finds in the caches what the
  // one before it left.
  std::vector<std::size_t> order(contestants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 shuffler(1);
  const auto round = [&] {
    std::ranges::shuffle(order, shuffler);
    for (const std::size_t i : order) {
      for (int k = 0; k < batches_of(contestants[i]); ++k) {
        time_batch(contestants[i], calls_of(contestants[i]), times[i]);
      }
    }
  };
  constexpr int kWarmUp = 3;
  for (int i = 0; i < kWarmUp; ++i) {
    round();
  }
  // All ranks make as many rounds: rank 0 says how many fit into the time.
  double rounds = std::clamp(seconds * 1e6 / std::max(time_us(round), 1.0), 7.0, 20000.0);
  ops::broadcast(context, {.data = &rounds, .count = 1, .dtype = Dtype::Float64}, 0);
  std::ranges::for_each(times, &Batches::clear);
  for (int i = 0; i < static_cast<int>(rounds); ++i) {
    round();
  }
  std::vector<Measurement> measurements;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const int batches = batches_of(contestants[i]);
    const int calls = calls_of(contestants[i]);
    const std::vector<double> worst = means(spans(context, times[i]), batches, calls);
    const std::vector<double> cpu = means(slowest(context, times[i].cpu_us), batches, calls);
    measurements.push_back({.contestant = &contestants[i],
                            .median_us = quantile(worst, 0.5),
                            .p95_us = quantile(worst, 0.95),
                            .cpu_us = quantile(cpu, 0.5)});
  }
  return measurements;
}

}  // namespace bluefog::benchmarks
