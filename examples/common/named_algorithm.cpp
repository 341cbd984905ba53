#include "examples/common/named_algorithm.hpp"

#include <algorithm>

#include "examples/common/named_schedule.hpp"
#include "examples/common/option_words.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/options.hpp"

namespace bluefog::examples {
namespace {

/// Adapt-then-combine with `step_in_backward`, as command lines say it.
constexpr std::string_view kAtcInBackward = "atc_in_backward";

bool is_atc_in_backward(std::string_view name) {
  return std::ranges::equal(name, kAtcInBackward, {}, [](char c) { return c == '-' ? '_' : c; });
}

}  // namespace

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const optimizers::AlgorithmRow* row : optimizers::algorithms()) {
    names.push_back(row->name);
    names.insert(names.end(), row->aliases.begin(), row->aliases.end());
  }
  names.emplace_back(kAtcInBackward);
  return names;
}

optimizers::AlgorithmName algorithm_of(std::string_view name) {
  return is_atc_in_backward(name) ? optimizers::AlgorithmName("atc")
                                  : optimizers::AlgorithmName(name);
}

bool brings_momentum(std::string_view algorithm) {
  return row_of(algorithm_of(algorithm)).reads("momentum");
}

bool brings_schedule(std::string_view algorithm) {
  return !row_of(algorithm_of(algorithm)).own_schedules.empty();
}

const std::vector<std::string>& topology_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names{std::string(kDefaultTopology)};
    names.insert(names.end(), schedule_names().begin(), schedule_names().end());
    for (const optimizers::AlgorithmRow* row : optimizers::algorithms()) {
      for (const optimizers::OwnSchedule& own : row->own_schedules) {
        names.push_back(own.name);
      }
    }
    return names;
  }();
  return kNames;
}

optimizers::DistributedOptimizerOptions options_of(const CommunicationOptions& communication,
                                                   int ranks) {
  optimizers::DistributedOptimizerOptions options;
  options.algorithm = algorithm_of(communication.algorithm);
  options.step_in_backward = is_atc_in_backward(communication.algorithm);
  if (communication.topology != kDefaultTopology) {
    options.schedule =
        is_one_of(topology_names(), communication.topology)
            ? optimizers::schedule_named(options.algorithm, communication.topology, {.size = ranks})
            : make_schedule(communication.topology, ranks);
  }
  options.num_steps_per_communication = communication.local_steps;
  options.momentum = communication.momentum;
  set_values(communication.values, options);
  return options;
}

}  // namespace bluefog::examples
