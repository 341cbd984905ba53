// Times neighbor_allreduce in place against a memcpy of the same size that all ranks do at the same
// time: the limit on one host. Both alternate in the same run; buffers are rewritten before every
// call; the slowest rank counts; medians are printed. Short messages are timed several calls at
// once, rewriting included: one alone is not much longer than reading the clock.
//
// With two ranks and messages that are not short, it also times the bare loop
// (benchmarks/bare_loop.hpp): copying, flagging and adding alone, by two threads of rank 0 while
// the other rank sleeps.
//
// The hand-over is the time of a call that carries nothing, in which the cores of the ranks see
// each other's stores: several times as long between cores that share no cache as between others.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/bare_loop.hpp"
#include "benchmarks/rounds.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/static_graphs.hpp"

namespace {

using bluefog::Context;
using bluefog::Dtype;
using bluefog::benchmarks::quantile;
using bluefog::benchmarks::slowest;
using bluefog::benchmarks::time_us;

/// Messages of up to so many bytes are timed in batches of so many calls.
constexpr std::int64_t kShortBytes = 4096;
constexpr int kShortBatch = 32;
/// Bytes that the bare loop copies before each flag.
constexpr std::size_t kLoopChunk = std::size_t{128} << 10U;

struct Result {
  std::int64_t bytes = 0;
  int rounds = 0;
  double op_us = 0;
  double op_p95_us = 0;
  double memcpy_us = 0;
  double hand_over_us = 0;
  /// Time of the bare loop; 0 if it is not timed.
  double loop_us = 0;
};

Result measure(Context& context, const std::shared_ptr<const bluefog::NeighborPlan>& plan,
               std::int64_t bytes, double seconds) {
  const auto count = static_cast<std::size_t>(bytes) / sizeof(float);
  std::vector<float> x(count, 1.0F);
  std::vector<float> y(count, 2.0F);
  std::vector<double> op_times;
  std::vector<double> copy_times;
  std::vector<double> hand_over_times;
  std::vector<double> loop_times;
  std::optional<bluefog::benchmarks::BareLoop> loop;
  if (context.size() == 2 && context.rank() == 0 && bytes > kShortBytes) {
    loop.emplace(static_cast<std::size_t>(bytes), kLoopChunk);
  }
  const int batch = bytes <= kShortBytes ? kShortBatch : 1;
  const auto rewrite = [&](int round) {
    const auto value = static_cast<float>(round % 8 + context.rank());
    std::fill(x.begin(), x.end(), value);
  };
  const auto run_op = [&] {
    bluefog::ops::neighbor_allreduce(
        context, {x.data(), static_cast<std::int64_t>(count), Dtype::Float32}, plan);
  };
  const auto run_copy = [&] {
    std::memcpy(y.data(), x.data(), static_cast<std::size_t>(bytes));
    asm volatile("" : : "r"(y.data()) : "memory");  // the copy counts although nobody reads it
  };
  const auto time_batch = [&](int index, const auto& call) {
    rewrite(index);
    bluefog::ops::barrier(context);
    return time_us([&] {
             call();
             for (int i = 1; i < batch; ++i) {
               rewrite(index + i);
               call();
             }
           }) /
           batch;
  };
  const auto round = [&](int index) {
    op_times.push_back(time_batch(index, run_op));
    copy_times.push_back(time_batch(index, run_copy));
    bluefog::ops::barrier(context);  // ranks come from their copies at different times
    hand_over_times.push_back(time_us([&] {
                                for (int i = 0; i < kShortBatch; ++i) {
                                  bluefog::ops::barrier(context);
                                }
                              }) /
                              kShortBatch);
    if (loop) {
      loop_times.push_back(loop->time_us());
    }
    bluefog::ops::barrier(context);
  };
  const double per_round = 4e-5 + static_cast<double>(bytes) * 8e-10;
  const int rounds = std::clamp(static_cast<int>(seconds / per_round), 15, 20000);
  for (int i = 0; i < std::max(3, rounds / 10); ++i) {
    round(i);
  }
  op_times.clear();
  copy_times.clear();
  hand_over_times.clear();
  loop_times.clear();
  for (int i = 0; i < rounds; ++i) {
    round(i);
  }
  op_times = slowest(context, op_times);
  copy_times = slowest(context, copy_times);
  return {.bytes = bytes,
          .rounds = rounds,
          .op_us = quantile(op_times, 0.5),
          .op_p95_us = quantile(op_times, 0.95),
          .memcpy_us = quantile(copy_times, 0.5),
          .hand_over_us = quantile(hand_over_times, 0.5),
          .loop_us = loop ? quantile(loop_times, 0.5) : 0};
}

std::shared_ptr<const bluefog::NeighborPlan> make_plan(const Context& context) {
  return std::make_shared<const bluefog::NeighborPlan>(
      bluefog::topology::exponential(context.size()).plan_for(context.rank()));
}

int run(int argc, char** argv) {
  std::vector<std::int64_t> sizes{4, 65536, 1048576, 16777216, 104857600};
  double seconds = 1.0;
  bool as_json = false;
  CLI::App app{"neighbor_allreduce against a concurrent memcpy"};
  app.add_option("--sizes", sizes, "Bytes per rank, multiples of 4")->delimiter(',');
  app.add_option("--seconds", seconds, "Time per size, about");
  app.add_flag("--json", as_json, "One JSON object per line instead of a table");
  CLI11_PARSE(app, argc, argv);

  const auto context = Context::create();
  const auto plan = make_plan(*context);
  for (const std::int64_t bytes : sizes) {
    const Result result = measure(*context, plan, bytes, seconds);
    if (context->rank() != 0) {
      continue;
    }
    if (as_json) {
      fmt::print("{}\n", nlohmann::json{{"ranks", context->size()},
                                        {"bytes", result.bytes},
                                        {"rounds", result.rounds},
                                        {"median_us", result.op_us},
                                        {"p95_us", result.op_p95_us},
                                        {"memcpy_us", result.memcpy_us},
                                        {"hand_over_us", result.hand_over_us},
                                        {"bare_loop_us", result.loop_us},
                                        {"limit_ratio", result.op_us / result.memcpy_us}}
                             .dump());
    } else {
      fmt::print(
          "{:>10} B  median {:>10.2f} us  p95 {:>10.2f} us  memcpy {:>10.2f} us  ratio {:.2f}  "
          "bare loop {:>10.2f} us  hand-over {:.2f} us\n",
          result.bytes, result.op_us, result.op_p95_us, result.memcpy_us,
          result.op_us / result.memcpy_us, result.loop_us, result.hand_over_us);
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "neighbor_allreduce_benchmark: {}\n", e.what());
    return 1;
  }
}
