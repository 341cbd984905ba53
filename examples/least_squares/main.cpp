// Heterogeneous least squares: the price of a fixed step size for each method.
//
//   bfrun -np 4 least_squares --topology ring
//
// Gradient all-reduce reaches the minimiser, and so do algorithms that correct their bias. ATC and
// AWC stop at a distance from it that shrinks with the step size and is smaller for ATC.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "examples/common/command_line.hpp"
#include "examples/common/named_algorithm.hpp"
#include "examples/common/option_words.hpp"
#include "examples/common/run_main.hpp"
#include "examples/least_squares/methods.hpp"
#include "tools/command_line/number_checks.hpp"

namespace {

using namespace bluefog;            // NOLINT: a program, not a header
using namespace bluefog::examples;  // NOLINT
using command_line::number;
using command_line::whole_number;

struct Options {
  std::vector<std::string> algorithms{"gradient_allreduce", "atc", "awc", "exact-diffusion"};
  std::vector<std::string> algorithm_options;
  std::string topology = "ring";
  bool is_topology_given = false;
  std::int64_t local_steps = 1;
  LeastSquaresShape shape;
  std::int64_t steps = 2000;
  double step_size = 0.1;
  std::uint64_t seed = 1;
};

void add_options(CLI::App& app, Options& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--algorithms", options.algorithms, "What to compare")
      ->check(one_of(algorithm_names()));
  add_algorithm_option(app, options.algorithm_options, [&options] {
    return why_no_options(options.algorithm_options, options.algorithms);
  });
  app.add_option("--topology", options.topology, "Who averages with whom, by name or as a file")
      ->each([&options](const std::string&) { options.is_topology_given = true; })
      ->check(one_of_or_edge_file(topology_names()));
  app.add_option("--local-steps", options.local_steps, "One step in so many communicates")
      ->check(whole_number(1, 1 << 30));
  app.add_option("--rows", options.shape.rows, "Equations per rank")
      ->check(whole_number(1, 1 << 20));
  app.add_option("--unknowns", options.shape.unknowns, "Length of x")->check(whole_number(1, 4096));
  app.add_option("--spread", options.shape.spread, "Distance between the ranks' own minimisers")
      ->check(number({.high = 1e100}));
  app.add_option("--steps", options.steps, "Steps of each run")->check(whole_number(1, 1 << 30));
  app.add_option("--step-size", options.step_size, "Largest step, in units of 1 / smoothness")
      ->check(number({.low = 1e-6, .high = 1.0}));
  app.add_option("--seed", options.seed, "Seed of the problem")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
}

/// Final errors of all algorithms at one step size.
std::vector<double> run_all(Context& context, const Options& options, const LeastSquaresPart& part,
                            const Eigen::VectorXd& solution, double step_size) {
  const OptionValues values = option_values(options.algorithm_options, options.algorithms);
  std::vector<double> final_errors;
  for (const std::string& algorithm : options.algorithms) {
    const bool takes_own = brings_schedule(algorithm) && !options.is_topology_given;
    const CommunicationOptions communication{
        algorithm, takes_own ? std::string(kDefaultTopology) : options.topology,
        options.local_steps, CommunicationOptions{}.momentum, values};
    final_errors.push_back(
        run_method(context, communication, part, solution, step_size, options.steps).back());
  }
  return final_errors;
}

int run(Context& context, const Options& options) {
  const LeastSquaresPart part = make_part(options.shape, context.rank(), options.seed);
  const Eigen::VectorXd solution = minimiser(context, part);
  const double largest_step = options.step_size / smoothness(context, part);
  const bool speaks = context.rank() == 0;
  if (speaks) {
    fmt::print("{} rank(s), topology {}, {} equations a rank, {} unknowns, {} steps\n",
               context.size(), options.topology, options.shape.rows, options.shape.unknowns,
               options.steps);
    fmt::print("relative distance to the minimiser after the last step\n{:>12}", "step size");
    for (const std::string& algorithm : options.algorithms) {
      fmt::print("{:>22}", algorithm);
    }
    fmt::print("\n");
  }
  for (const double fraction : {1.0, 0.5, 0.25}) {
    const auto errors = run_all(context, options, part, solution, fraction * largest_step);
    if (speaks) {
      fmt::print("{:>12.5f}", fraction * largest_step);
      for (const double error : errors) {
        fmt::print("{:>22.3e}", error);
      }
      fmt::print("\n");
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("least_squares", [&](Context& context) {
    Options options;
    CLI::App app("Heterogeneous least squares: what a fixed step size costs.", "least_squares");
    add_options(app, options);
    const auto code = parse_command_line(app, argc, argv, context);
    return code ? *code : run(context, options);
  });
}
