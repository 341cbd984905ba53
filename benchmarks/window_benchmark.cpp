// Times win_put, win_accumulate and win_get between neighbours of a ring against a memcpy of the
// same size that all ranks do at the same time: the limit on one host. All of them take turns in
// one run; the tensor is rewritten before every call; the slowest rank counts; medians are printed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "benchmarks/rounds.hpp"
#include "ops/collectives.hpp"
#include "ops/window.hpp"
#include "topology/static_graphs.hpp"

namespace {

using bluefog::Context;
using bluefog::benchmarks::quantile;
using bluefog::benchmarks::slowest;
using bluefog::benchmarks::time_us;

constexpr std::array<std::string_view, 4> kCalls{"win_put", "win_accumulate", "win_get", "memcpy"};

/// Medians by call, in us.
std::array<double, kCalls.size()> measure(Context& context, std::int64_t bytes, double seconds) {
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(float));
  std::vector<float> x(static_cast<std::size_t>(count), 1.0F);
  std::vector<float> y(x.size(), 2.0F);
  const bluefog::BufferView view{.data = x.data(), .count = count};
  const auto plan = bluefog::topology::ring(context.size(), bluefog::topology::RingStyle::Right)
                        .plan_for(context.rank());
  const auto window = bluefog::ops::Window::create(context, view, plan, {.name = "benchmark"});
  const auto call = [&](std::size_t index) {
    switch (index) {
      case 0:
        window->put(view);
        break;
      case 1:
        window->accumulate(view);
        break;
      case 2:
        window->get();
        break;
      default:
        std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
        asm volatile("" : : "r"(y.data()) : "memory");  // the copy counts although nobody reads it
    }
  };
  const int rounds =
      std::clamp(static_cast<int>(seconds / (2e-5 + static_cast<double>(bytes) * 2e-9)), 15, 20000);
  std::array<std::vector<double>, kCalls.size()> times;
  for (int round = -rounds / 10; round < rounds; ++round) {
    for (std::size_t index = 0; index < kCalls.size(); ++index) {
      bluefog::ops::barrier(context);
      std::fill(x.begin(), x.end(), static_cast<float>(round % 8 + context.rank()));
      bluefog::ops::barrier(context);
      const double time = time_us([&] { call(index); });
      if (round >= 0) {
        times[index].push_back(time);
      }
    }
  }
  std::array<double, kCalls.size()> medians{};
  for (std::size_t index = 0; index < kCalls.size(); ++index) {
    medians[index] = quantile(slowest(context, times[index]), 0.5);
  }
  window->free();
  return medians;
}

int run(int argc, char** argv) {
  std::vector<std::int64_t> sizes{4, 65536, 1048576, 16777216, 104857600};
  double seconds = 2.0;
  bool as_json = false;
  CLI::App app{"window calls against a concurrent memcpy"};
  app.add_option("--sizes", sizes, "Bytes per rank, multiples of 4")->delimiter(',');
  app.add_option("--seconds", seconds, "Time per size, about");
  app.add_flag("--json", as_json, "One JSON object per line instead of a table");
  CLI11_PARSE(app, argc, argv);

  const auto context = Context::create();
  for (const std::int64_t bytes : sizes) {
    const auto medians = measure(*context, bytes, seconds);
    if (context->rank() != 0) {
      continue;
    }
    for (std::size_t index = 0; index + 1 < kCalls.size(); ++index) {
      const double ratio = medians[index] / medians.back();
      if (as_json) {
        fmt::print("{}\n", nlohmann::json{{"op", kCalls[index]},
                                          {"ranks", context->size()},
                                          {"bytes", bytes},
                                          {"median_us", medians[index]},
                                          {"memcpy_us", medians.back()},
                                          {"limit_ratio", ratio}}
                               .dump());
      } else {
        fmt::print("{:>10} B  {:<14}  median {:>10.2f} us  memcpy {:>10.2f} us  ratio {:.2f}\n",
                   bytes, kCalls[index], medians[index], medians.back(), ratio);
      }
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
    fmt::print(stderr, "window_benchmark: {}\n", e.what());
    return 1;
  }
}
