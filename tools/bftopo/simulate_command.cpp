#include <fmt/format.h>

#include <algorithm>

#include "tools/bftopo/commands.hpp"
#include "tools/bftopo/json_values.hpp"
#include "tools/bftopo/progress_bar.hpp"
#include "topology/simulation.hpp"

namespace bluefog::bftopo {
namespace {

std::int64_t steps_wanted(const Options& options, std::int64_t period) {
  constexpr std::int64_t kFewest = 20;
  constexpr std::int64_t kMost = 200;
  return options.simulated_steps.value_or(std::clamp(2 * std::min(period, kMost), kFewest, kMost));
}

std::string time_words(topology::Seconds time) {
  const double seconds = time.count();
  if (seconds < 1e-3) {
    return fmt::format("{:.4g} µs", seconds * 1e6);
  }
  if (seconds < 1.0) {
    return fmt::format("{:.4g} ms", seconds * 1e3);
  }
  return fmt::format("{:.4g} s", seconds);
}

Json simulation_json(const Subject& subject, const topology::Simulation& run, int size,
                     std::int64_t period, topology::Seconds allreduce) {
  Json steps = Json::array();
  for (std::size_t t = 0; t < run.steps.size(); ++t) {
    steps.push_back({{"step", t + 1},
                     {"consensus_distance", run.steps[t].consensus_distance},
                     {"elapsed_s", run.steps[t].elapsed.count()},
                     {"messages", run.steps[t].messages}});
  }
  return {{"topology", subject.name},
          {"n", size},
          {"without", subject.lost},
          {"period", period},
          {"initial_distance", run.initial_distance},
          {"mean_drift", run.mean_drift},
          {"ring_allreduce_s", allreduce.count()},
          {"steps", steps}};
}

}  // namespace

std::string simulate_text(const Options& options, const Subject& subject, std::FILE* terminal) {
  const Schedule schedule = subject.schedule();
  const std::int64_t period = schedule.period_steps();
  topology::SimulationOptions wanted{.steps = steps_wanted(options, period),
                                     .seed = options.family_options.seed,
                                     .cost = options.cost};
  ProgressBar bar(terminal, wanted.steps);
  wanted.on_step = [&](std::int64_t done) { bar.update(done); };
  const topology::Simulation run = std::visit(
      [&](const auto& graph) { return topology::simulate(graph, wanted); }, subject.graph);
  const topology::Seconds allreduce = topology::ring_allreduce_time(schedule.size(), options.cost);
  if (options.json) {
    return simulation_json(subject, run, schedule.size(), period, allreduce).dump(2) + "\n";
  }
  std::string text =
      fmt::format("{}, {}, period {}\n{:>8}  {:>18}  {:>12}  {:>12}\n", subject.name,
                  subject.count_words(), period, "step", "consensus distance", "time", "messages");
  text += fmt::format("{:>8}  {:>18.6g}\n", 0, run.initial_distance);
  for (std::size_t t = 0; t < run.steps.size(); ++t) {
    const topology::SimulatedStep& step = run.steps[t];
    const bool ends_period = (static_cast<std::int64_t>(t) + 1) % period == 0 && period > 1;
    text += fmt::format("{:>8}  {:>18.6g}  {:>12}  {:>12}{}\n", t + 1, step.consensus_distance,
                        time_words(step.elapsed), step.messages, ends_period ? "  period" : "");
  }
  text += fmt::format("mean moved by {:.3g}; a ring all-reduce would take {}\n", run.mean_drift,
                      time_words(allreduce));
  return text;
}

}  // namespace bluefog::bftopo
