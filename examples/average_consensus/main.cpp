// Average consensus: every rank starts with random values and averages with its neighbours, until
// all agree on the mean.
//
//   bfrun -np 8 average_consensus --topology one-peer-exponential
//
// Prints the distance from agreement after each step beside the bound that the topology's spectral
// gap predicts.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "examples/average_consensus/contraction.hpp"
#include "examples/common/collect.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/named_schedule.hpp"
#include "examples/common/option_words.hpp"
#include "examples/common/run_main.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tools/command_line/number_checks.hpp"

namespace {

using namespace bluefog;            // NOLINT: a program, not a header
using namespace bluefog::examples;  // NOLINT
using command_line::whole_number;

struct Options {
  std::string topology = "exponential";
  std::int64_t steps = 20;
  std::int64_t values = 1000;
  std::uint64_t seed = 1;
};

void add_options(CLI::App& app, Options& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--topology", options.topology, "Who averages with whom, by name or as a file")
      ->check(one_of_or_edge_file(schedule_names()));
  app.add_option("--steps", options.steps, "Averaging steps")->check(whole_number(1, 1 << 30));
  app.add_option("--values", options.values, "Numbers per rank")->check(whole_number(1, 1 << 30));
  app.add_option("--seed", options.seed, "Seed of the numbers")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
}

std::vector<double> random_values(const Options& options, int rank) {
  std::seed_seq mixed{static_cast<std::uint32_t>(options.seed),
                      static_cast<std::uint32_t>(options.seed >> 32),
                      static_cast<std::uint32_t>(rank)};
  std::mt19937_64 random(mixed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(options.values));
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

/// The largest change of the mean over all values: averaging must not move it.
double largest_drift(Context& context, std::vector<double> start, std::vector<double> end) {
  ops::allreduce(context, view_of(start));
  ops::allreduce(context, view_of(end));
  double largest = 0.0;
  for (std::size_t k = 0; k < start.size(); ++k) {
    largest = std::max(largest, std::abs(end[k] - start[k]));
  }
  return largest;
}

/// The bound is one of averages: a file may have other weights.
void check_averages(const Options& options, const Schedule& schedule) {
  const std::vector<double> sums = schedule.mixing_matrix(0).row_sums();
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    if (std::abs(sums[rank] - 1.0) > 1e-9) {
      throw InvalidArgument(fmt::format(
          "--topology {}: expected weights that sum to 1 at each rank that averages with "
          "them, found a sum of {} at rank {}",
          options.topology, sums[rank], rank));
    }
  }
}

int run(Context& context, const Options& options) {
  const Schedule schedule = make_schedule(options.topology, context.size());
  check_averages(options, schedule);
  const double contraction = contraction_per_period(schedule);
  const std::int64_t period = schedule.period_steps();
  const std::vector<double> start = random_values(options, context.rank());
  std::vector<double> x = start;
  const double first = consensus_distance(context, x);
  const auto print = [&](const std::string& line) {
    if (context.rank() == 0) {
      fmt::print("{}\n", line);
    }
  };

  print(fmt::format("{} rank(s), topology {}, {} values a rank", context.size(), options.topology,
                    options.values));
  print(
      fmt::format("period of {} step(s), which shrinks the distance to {:.4f} at worst (spectral "
                  "gap {:.4f})",
                  period, contraction, 1.0 - contraction));
  print(fmt::format("{:>6}{:>18}{:>18}", "step", "distance", "bound"));
  print(fmt::format("{:>6}{:>18.6e}{:>18.6e}", 0, first, first));
  // Rounding leaves a distance where the bound reaches zero.
  const double rounding = 1e-12 * (1.0 + first);
  bool holds = true;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    ops::neighbor_allreduce(context, view_of(x), schedule.plan_for(context.rank(), step));
    const double distance = consensus_distance(context, x);
    const double bound = first * predicted_distance(contraction, period, step + 1);
    holds = holds && distance <= bound * (1.0 + 1e-9) + rounding;
    print(fmt::format("{:>6}{:>18.6e}{:>18.6e}", step + 1, distance, bound));
  }
  const double drift = largest_drift(context, start, x);
  print(fmt::format("the mean moved by {:.1e}", drift));
  if (!holds) {
    print("the distance exceeded the bound: please report this");
  }
  return holds ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("average_consensus", [&](Context& context) {
    Options options;
    CLI::App app("Averaging with neighbours until all ranks agree.", "average_consensus");
    add_options(app, options);
    const auto code = parse_command_line(app, argc, argv, context);
    return code ? *code : run(context, options);
  });
}
