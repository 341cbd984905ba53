// Times this project's operations, Open MPI's own calls and a memcpy of the same size, which all
// ranks do at the same time: the limit on one host. All of them take turns within one run, on
// several buffers in turn, so that no cache holds what a call finds; the buffer is rewritten before
// each call, as a training step does; the slowest rank counts. Of short messages a timing spans
// several calls, rewriting included: one alone is not much longer than reading the clock.
//
//   bfrun -np 2 operations_benchmark --sizes 4,1048576 --json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/operations/contestant.hpp"
#include "benchmarks/rounds.hpp"
#include "ops/collectives.hpp"

namespace {

using namespace bluefog::benchmarks;  // NOLINT: a program, not a header
using bluefog::BufferView;
using bluefog::Context;
using bluefog::Dtype;

/// Messages of up to so many bytes are timed in batches of so many calls.
constexpr std::int64_t kShortBytes = 4096;
constexpr int kShortBatch = 32;
/// Buffers take turns until so many bytes have been touched.
constexpr std::int64_t kRotatedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMostBuffers = 16;

struct Options {
  std::vector<std::int64_t> sizes{4, 65536, 1048576, 16777216, 104857600};
  std::string dtype = "float32";
  std::vector<std::string> ops;
  double seconds = 2.0;
  bool without_mpi = false;
  bool as_json = false;
};

struct Measurement {
  const Contestant* contestant = nullptr;
  double median_us = 0;
  double p95_us = 0;
};

template <typename T>
void fill(const BufferView& buffer, T value) {
  std::fill_n(static_cast<T*>(buffer.data), buffer.count, value);
}

/// Numbers between 1 and 2, which no average of theirs makes subnormal.
void rewrite(const BufferView& buffer, unsigned turn) {
  const auto step = static_cast<std::uint16_t>(turn % 8);
  switch (buffer.dtype) {
    case Dtype::Float16:
      fill(buffer, static_cast<std::uint16_t>(0x3c00U + step));
      break;
    case Dtype::BFloat16:
      fill(buffer, static_cast<std::uint16_t>(0x3f80U + step));
      break;
    case Dtype::Float32:
      fill(buffer, 1.0F + static_cast<float>(step) / 8);
      break;
    default:
      fill(buffer, 1.0 + static_cast<double>(step) / 8);
  }
}

class Buffers {
 public:
  explicit Buffers(const Setting& setting) : count_(setting.count), dtype_(setting.dtype) {
    const std::size_t bytes = static_cast<std::size_t>(count_) * bluefog::size_of(dtype_);
    const auto many = kRotatedBytes / static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1));
    memory_.assign(static_cast<std::size_t>(std::clamp(many, std::int64_t{1}, kMostBuffers)),
                   std::vector<std::byte>(bytes));
  }

  /// The next buffer, rewritten.
  BufferView next() {
    BufferView buffer{
        .data = memory_[turn_++ % memory_.size()].data(), .count = count_, .dtype = dtype_};
    rewrite(buffer, turn_);
    return buffer;
  }

 private:
  std::int64_t count_;
  Dtype dtype_;
  std::vector<std::vector<std::byte>> memory_;
  unsigned turn_ = 0;
};

std::vector<Contestant> contestants_of(const Setting& setting,
                                       const std::vector<std::string>& wanted) {
  // First, while no other thread uses MPI: with a window's beside it Open MPI 5.0 was seen not to come
  // back from MPI_Comm_dup between hosts.
  std::vector<Contestant> of_mpi = mpi_contestants(setting);
  std::vector<Contestant> all = own_contestants(setting);
  std::ranges::move(of_mpi, std::back_inserter(all));
  const auto is_unwanted = [&](const Contestant& contestant) {
    return !wanted.empty() && std::ranges::none_of(wanted, [&](const std::string& word) {
      return contestant.op.find(word) != std::string::npos;
    });
  };
  std::erase_if(all, is_unwanted);
  all.push_back(memcpy_contestant(setting));
  return all;
}

std::vector<Measurement> measure(const Setting& setting, const std::vector<Contestant>& contestants,
                                 double seconds) {
  Context& context = setting.context;
  Buffers buffers(setting);
  const std::int64_t bytes =
      setting.count * static_cast<std::int64_t>(bluefog::size_of(setting.dtype));
  const int batch = bytes <= kShortBytes ? kShortBatch : 1;
  const auto time_batch = [&](const Contestant& contestant) {
    BufferView buffer = buffers.next();
    bluefog::ops::barrier(context);
    return time_us([&] {
             contestant.call(buffer);
             for (int i = 1; i < batch; ++i) {
               contestant.call(buffers.next());
             }
           }) /
           batch;
  };
  std::vector<std::vector<double>> times(contestants.size());
  // In another order each round, the same on all ranks: a call finds in the caches what the one
  // before it left.
  std::vector<std::size_t> order(contestants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 shuffler(1);
  const auto round = [&] {
    std::ranges::shuffle(order, shuffler);
    for (const std::size_t i : order) {
      times[i].push_back(time_batch(contestants[i]));
    }
  };
  constexpr int kWarmUp = 3;
  for (int i = 0; i < kWarmUp; ++i) {
    round();
  }
  // All ranks make as many rounds: rank 0 says how many fit into the time.
  double rounds = std::clamp(seconds * 1e6 / std::max(time_us(round), 1.0), 7.0, 20000.0);
  bluefog::ops::broadcast(context, {.data = &rounds, .count = 1, .dtype = Dtype::Float64}, 0);
  for (auto& values : times) {
    values.clear();
  }
  for (int i = 0; i < static_cast<int>(rounds); ++i) {
    round();
  }
  std::vector<Measurement> measurements;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const std::vector<double> worst = slowest(context, times[i]);
    measurements.push_back({.contestant = &contestants[i],
                            .median_us = quantile(worst, 0.5),
                            .p95_us = quantile(worst, 0.95)});
  }
  return measurements;
}

void print(const Setting& setting, const std::vector<Measurement>& measurements, bool as_json) {
  const auto bytes = setting.count * static_cast<std::int64_t>(bluefog::size_of(setting.dtype));
  if (const std::string reason = why_no_mpi(setting); !reason.empty() && as_json) {
    fmt::print("{}\n", nlohmann::json{{"peer", "Open MPI"},
                                      {"ranks", setting.context.size()},
                                      {"device", "cpu"},
                                      {"dtype", bluefog::name_of(setting.dtype)},
                                      {"bytes", bytes},
                                      {"not_run", reason}}
                           .dump());
  }
  const double limit_us = measurements.back().median_us;
  for (const Measurement& measurement : measurements) {
    const Contestant& contestant = *measurement.contestant;
    // Bytes per microsecond are 10⁶ bytes per second.
    const double gbps = static_cast<double>(bytes) / measurement.median_us * 1e-3;
    if (as_json) {
      fmt::print("{}\n", nlohmann::json{{"peer", contestant.peer},
                                        {"op", contestant.op},
                                        {"ranks", setting.context.size()},
                                        {"hosts", setting.context.hosts().machine_count()},
                                        {"device", "cpu"},
                                        {"dtype", bluefog::name_of(setting.dtype)},
                                        {"bytes", bytes},
                                        {"median_us", measurement.median_us},
                                        {"p95_us", measurement.p95_us},
                                        {"algbw_gbps", gbps},
                                        {"busbw_gbps", gbps * contestant.bus_factor},
                                        {"limit_ratio", measurement.median_us / limit_us}}
                             .dump());
    } else {
      fmt::print("{:>11} B  {:<12} {:<50} {:>11.2f} us  p95 {:>11.2f} us  {:>7.2f} GB/s  {:>7.2f}\n",
                 bytes, contestant.peer, contestant.op, measurement.median_us, measurement.p95_us,
                 gbps, measurement.median_us / limit_us);
    }
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  const std::map<std::string, Dtype> dtypes{{"float16", Dtype::Float16},
                                            {"bfloat16", Dtype::BFloat16},
                                            {"float32", Dtype::Float32},
                                            {"float64", Dtype::Float64}};
  CLI::App app{"This project's operations, Open MPI's own, and a concurrent memcpy"};
  app.add_option("--sizes", options.sizes, "Bytes per rank, multiples of the dtype's size")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember(dtypes));
  app.add_option("--ops", options.ops, "Parts of names; default: all")->delimiter(',');
  app.add_option("--seconds", options.seconds, "Time per size, about")->check(CLI::PositiveNumber);
  app.add_flag("--without-mpi", options.without_mpi, "Leaves Open MPI's own calls out");
  app.add_flag("--json", options.as_json, "One JSON object per line in place of a table");
  CLI11_PARSE(app, argc, argv);

  const auto context = Context::create();
  for (const std::int64_t bytes : options.sizes) {
    const Dtype dtype = dtypes.at(options.dtype);
    const auto element = static_cast<std::int64_t>(bluefog::size_of(dtype));
    const Setting setting{.context = *context,
                          .dtype = dtype,
                          .count = (bytes + element - 1) / element,
                          .without_mpi = options.without_mpi};
    const std::vector<Contestant> contestants = contestants_of(setting, options.ops);
    const std::vector<Measurement> measurements = measure(setting, contestants, options.seconds);
    if (context->rank() == 0) {
      print(setting, measurements, options.as_json);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "operations_benchmark: {}\n", e.what());
    return 1;
  }
}
