// Times training's rhythm on ranks that compute for uneven times: each sleeps for what its compute
// takes, then averages a buffer with neighbours; by messages, in place among all ranks that the step
// ties together, and as the library chooses. The ways take turns in blocks, each on a copy of the
// context, with the same times of compute. A block's time is the slowest rank's.
//
//   bfrun -np 8 uneven_benchmark --spread 0.3 --json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/rounds.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/families.hpp"
#include "topology/schedule.hpp"

namespace {

using bluefog::BufferView;
using bluefog::Context;
using bluefog::Schedule;
using bluefog::SynchronisationChoice;
using namespace bluefog::benchmarks;  // NOLINT: a program, not a header

struct Options {
  std::int64_t bytes = 16 << 20;
  std::string graph = "one-peer-exponential";
  double compute_ms = 50;
  double spread = 0.3;
  double slow = 1;
  int iterations = 40;
  int blocks = 5;
  bool as_json = false;
};

struct Way {
  const char* name;
  SynchronisationChoice synchronisation;
};
constexpr std::array kWays{Way{"messages", SynchronisationChoice::Neighbors},
                           Way{"in place", SynchronisationChoice::Component},
                           Way{"auto", SynchronisationChoice::Auto}};

/// The times of compute of one rank, the same for each way: lognormal with the given mean.
class Compute {
 public:
  Compute(const Options& options, int rank)
      : random_(static_cast<unsigned>(rank + 1)),
        times_(-options.spread * options.spread / 2, options.spread),
        mean_ms_(options.compute_ms * (rank == 0 ? options.slow : 1)) {}

  void run() {
    const double factor = times_(random_);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(mean_ms_ * factor));
  }

 private:
  std::mt19937 random_;
  std::lognormal_distribution<double> times_;
  double mean_ms_;
};

/// The iterations of one way, on a context of its own.
class Training {
 public:
  Training(Context& context, const Options& options, const Schedule& schedule, const Way& way)
      : context_(context.duplicate()),
        memory_(context_->allocate_shared(static_cast<std::size_t>(options.bytes))),
        view_{.data = memory_.get(), .count = options.bytes / 4},
        schedule_(schedule),
        compute_(options, context.rank()),
        way_(way) {}

  /// Milliseconds an iteration.
  double run(int iterations) {
    bluefog::ops::barrier(*context_);
    return time_us([&] {
             for (int i = 0; i < iterations; ++i) {
               compute_.run();
               bluefog::ops::neighbor_allreduce(*context_, view_,
                                                schedule_.plan_for(context_->rank(), step_++),
                                                {.synchronisation = way_.synchronisation});
             }
           }) /
           1e3 / iterations;
  }

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<std::byte> memory_;
  BufferView view_;
  Schedule schedule_;
  Compute compute_;
  Way way_;
  std::int64_t step_ = 0;
};

void print(const Context& context, const Options& options, const char* way, double ms,
           double messages_ms) {
  if (options.as_json) {
    fmt::print("{}\n", nlohmann::json{{"op", "uneven ranks"},
                                      {"graph", options.graph},
                                      {"ranks", context.size()},
                                      {"bytes", options.bytes},
                                      {"compute_ms", options.compute_ms},
                                      {"spread", options.spread},
                                      {"slow", options.slow},
                                      {"way", way},
                                      {"iteration_ms", ms},
                                      {"share_of_messages", ms / messages_ms}}
                           .dump());
  } else {
    fmt::print(
        "{:<22} spread {:.2f}, slow {:.1f}  {:<9} {:>8.2f} ms an iteration, {:.3f} of messages\n",
        options.graph, options.spread, options.slow, way, ms, ms / messages_ms);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{"neighbour averages on ranks that compute for uneven times"};
  app.add_option("--bytes", options.bytes, "Bytes per rank, a multiple of 4")
      ->check(CLI::PositiveNumber)
      ->check([](const std::string& text) {
        return std::stoll(text) % 4 == 0 ? "" : "expected a multiple of 4, found " + text;
      });
  app.add_option("--graph", options.graph, "A family of bftopo");
  app.add_option("--compute-ms", options.compute_ms, "Mean time of compute")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--spread", options.spread, "Standard deviation of its logarithm")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--slow", options.slow, "How many times as long rank 0 computes")
      ->check(CLI::PositiveNumber);
  app.add_option("--iterations", options.iterations, "Of a block")->check(CLI::PositiveNumber);
  app.add_option("--blocks", options.blocks, "Of each way")->check(CLI::PositiveNumber);
  app.add_flag("--json", options.as_json, "One JSON object per line");
  CLI11_PARSE(app, argc, argv);

  const auto context = Context::create();
  const Schedule schedule =
      bluefog::topology::make_schedule(options.graph, {.size = context->size()});
  std::vector<std::unique_ptr<Training>> trainings;
  for (const Way& way : kWays) {
    trainings.push_back(std::make_unique<Training>(*context, options, schedule, way));
  }
  std::array<std::vector<double>, kWays.size()> times;
  for (const auto& training : trainings) {
    training->run(1);  // whoever is first in a block finds threads and memory as the others do
  }
  for (int block = 0; block < options.blocks; ++block) {
    for (std::size_t turn = 0; turn < kWays.size(); ++turn) {
      const std::size_t way = (turn + static_cast<std::size_t>(block)) % kWays.size();
      times[way].push_back(trainings[way]->run(options.iterations));
    }
  }
  std::array<double, kWays.size()> medians{};
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    medians[way] = quantile(slowest(*context, times[way]), 0.5);
  }
  for (std::size_t way = 0; way < kWays.size() && context->rank() == 0; ++way) {
    print(*context, options, kWays[way].name, medians[way], medians[0]);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return bluefog::benchmarks::run_program("uneven_benchmark", run, argc, argv);
}
