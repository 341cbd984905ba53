#include "benchmarks/operations/measurement.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

/// A call's time, and what the process computed meanwhile.
struct Sample {
  double us = 0;
  double cpu_us = 0;

  Sample& operator+=(const Sample& other) {
    us += other.us;
    cpu_us += other.cpu_us;
    return *this;
  }
  friend Sample operator/(const Sample& sum, int count) {
    return {.us = sum.us / count, .cpu_us = sum.cpu_us / count};
  }
};

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
  const auto time_batch = [&](const Contestant& contestant, int calls) {
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
    const double us = time_us([&] {
      call();
      for (int i = 1; i < calls; ++i) {
        buffer = buffers.next();
        call();
      }
    });
    return Sample{.us = us, .cpu_us = process_cpu_us() - cpu_us};
  };
  // One call, the mean over a period of the contestant's.
  const auto sample_of = [&](const Contestant& contestant) {
    if (batch > 1) {
      const int calls = (batch + contestant.period - 1) / contestant.period * contestant.period;
      return time_batch(contestant, calls) / calls;
    }
    Sample sum;
    for (int i = 0; i < contestant.period; ++i) {
      sum += time_batch(contestant, 1);
    }
    return sum / contestant.period;
  };
  std::vector<std::vector<double>> times(contestants.size());
  std::vector<std::vector<double>> cpu_times(contestants.size());
  // Every round has an order of its own, the same on all ranks: a call finds in the caches what the
  // one before it left.
  std::vector<std::size_t> order(contestants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 shuffler(1);
  const auto round = [&] {
    std::ranges::shuffle(order, shuffler);
    for (const std::size_t i : order) {
      const Sample sample = sample_of(contestants[i]);
      times[i].push_back(sample.us);
      cpu_times[i].push_back(sample.cpu_us);
    }
  };
  constexpr int kWarmUp = 3;
  for (int i = 0; i < kWarmUp; ++i) {
    round();
  }
  // All ranks make as many rounds: rank 0 says how many fit into the time.
  double rounds = std::clamp(seconds * 1e6 / std::max(time_us(round), 1.0), 7.0, 20000.0);
  ops::broadcast(context, {.data = &rounds, .count = 1, .dtype = Dtype::Float64}, 0);
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    times[i].clear();
    cpu_times[i].clear();
  }
  for (int i = 0; i < static_cast<int>(rounds); ++i) {
    round();
  }
  std::vector<Measurement> measurements;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const std::vector<double> worst = slowest(context, times[i]);
    measurements.push_back({.contestant = &contestants[i],
                            .median_us = quantile(worst, 0.5),
                            .p95_us = quantile(worst, 0.95),
                            .cpu_us = quantile(slowest(context, cpu_times[i]), 0.5)});
  }
  return measurements;
}

}  // namespace bluefog::benchmarks
