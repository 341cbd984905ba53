#include "optimizers/algorithms/registry/algorithm_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/checks/mixing_requirements.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::optimizers {
namespace {

/// "a, b or c": the algorithms that are as asked.
template <typename IsOne>
std::string names_where(IsOne&& is_one) {
  std::vector<std::string_view> names;
  for (const AlgorithmRow* row : algorithms()) {
    if (is_one(*row)) {
      names.emplace_back(row->name);
    }
  }
  std::string text(names.front());
  for (std::size_t i = 1; i < names.size(); ++i) {
    text += fmt::format("{}{}", i + 1 < names.size() ? ", " : " or ", names[i]);
  }
  return text;
}

/// Up to here each whole number is one of the floating-point numbers that options come as.
constexpr double kMostWhole = 9007199254740992.0;

/// "from 0 to below 1".
std::string described_range(const AlgorithmOption& option) {
  const double largest = std::nextafter(option.below, option.least);
  return std::isfinite(option.below) && largest == std::floor(largest)
             ? fmt::format("from {} to {}", option.least, largest)
             : fmt::format("from {} to below {}", option.least, option.below);
}

/// Why `name` is none of the numbers of that algorithm.
std::string why_no_number(const AlgorithmRow& row, std::string_view name) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> fields;
  for (const AlgorithmOption& option : row.options) {
    if (option.is_field && option.name == name) {
      return fmt::format("numbers: '{}' of {} has a field of its own, {}: set that", name, row.name,
                         name);
    }
    (option.is_field ? fields : names).push_back(option.name);
  }
  std::string known = names.empty() ? "which has none" : fmt::format("{}", fmt::join(names, ", "));
  if (!fields.empty()) {
    known += fmt::format(" ({}: {} own)", fmt::join(fields, ", "),
                         fields.size() == 1 ? "a field of its" : "fields of their");
  }
  return fmt::format("numbers: expected options of {}, {}, found '{}'", row.name, known, name);
}

std::string why_invalid_own_numbers(const AlgorithmRow& row,
                                    const DistributedOptimizerOptions& options) {
  for (const auto& [name, value] : options.numbers) {
    const auto listed = std::ranges::find(row.options, name, &AlgorithmOption::name);
    if (listed == row.options.end() || listed->is_field) {
      return why_no_number(row, name);
    }
    const bool is_whole = std::holds_alternative<std::int64_t>(listed->default_value);
    if (is_whole && value != std::floor(value)) {
      return fmt::format("{}: expected a whole number, found {}", name, value);
    }
    if (is_whole && std::abs(value) > kMostWhole) {
      return fmt::format("{}: expected at most 2^53, found {}", name, value);
    }
    if (std::holds_alternative<bool>(listed->default_value) && value != 0.0 && value != 1.0) {
      return fmt::format("{}: expected 0 or 1, found {}", name, value);
    }
    if (!(value >= listed->least && value < listed->below)) {
      return fmt::format("{}: expected {}, found {}", name, described_range(*listed), value);
    }
  }
  return {};
}

/// Why an algorithm cannot have a value of a field that it does not read; empty where it is the
/// default, or none at all.
std::string why_unread(const AlgorithmRow& row, std::string_view option, double value,
                       double usual) {
  if (row.reads(option) || value == usual || value == 0.0) {
    return {};
  }
  return fmt::format("{}: expected {}, found {}, which has none", option,
                     names_where([&](const AlgorithmRow& other) { return other.reads(option); }),
                     row.name);
}

std::string why_unread(const AlgorithmRow& row, const DistributedOptimizerOptions& options) {
  if (options.compression && !row.reads("compression")) {
    return fmt::format(
        "compression: expected {}, found {}, which sends values as they are",
        names_where([](const AlgorithmRow& other) { return other.reads("compression"); }),
        row.name);
  }
  const DistributedOptimizerOptions usual;
  const std::string problem = why_unread(row, "momentum", options.momentum, usual.momentum);
  return problem.empty() ? why_unread(row, "global_period_rounds",
                                      static_cast<double>(options.global_period_rounds),
                                      static_cast<double>(usual.global_period_rounds))
                         : problem;
}

std::string why_invalid_numbers(const AlgorithmRow& row,
                                const DistributedOptimizerOptions& options) {
  if (options.num_steps_per_communication < 1) {
    return fmt::format("num_steps_per_communication: expected at least 1, found {}",
                       options.num_steps_per_communication);
  }
  if (row.needs_every_step && options.num_steps_per_communication != 1) {
    return fmt::format(
        "num_steps_per_communication: {} expects 1, because a step goes by what was exchanged in "
        "the step before, found {}",
        row.name, options.num_steps_per_communication);
  }
  if (options.global_period_rounds < 1) {
    return fmt::format("global_period_rounds: expected at least 1, found {}",
                       options.global_period_rounds);
  }
  if (!(options.momentum >= 0.0 && options.momentum < 1.0)) {
    return fmt::format("momentum: expected from 0 to below 1, found {}", options.momentum);
  }
  if (name_of(options.buffers) == "unknown") {
    return fmt::format("buffers: expected a value of BufferPolicy, found {}",
                       static_cast<int>(options.buffers));
  }
  if (options.stepping > Stepping::Whole) {
    return fmt::format("stepping: expected a value of Stepping, found {}",
                       static_cast<int>(options.stepping));
  }
  if (options.row_sums > RowSums::Any) {
    return fmt::format("row_sums: expected a value of RowSums, found {}",
                       static_cast<int>(options.row_sums));
  }
  if (options.step_in_backward && !row.reads("step_in_backward")) {
    return fmt::format(
        "step_in_backward: expected {}, found {}",
        names_where([](const AlgorithmRow& other) { return other.reads("step_in_backward"); }),
        row.name);
  }
  if (options.bucket_bytes < 0) {
    return fmt::format("bucket_bytes: expected 0 (the setting) or more, found {}",
                       options.bucket_bytes);
  }
  const std::string problem = why_unread(row, options);
  return problem.empty() ? why_invalid_own_numbers(row, options) : problem;
}

std::string why_not_shares(const AlgorithmRow& row, const NeighborPlan& plan) {
  double handed_out = plan.self_weight;
  bool is_split = plan.self_weight > 0.0;
  for (const WeightedRank& destination : plan.destinations) {
    handed_out += destination.weight;
    is_split = is_split && destination.weight >= 0.0;
  }
  for (const WeightedRank& source : plan.sources) {
    is_split = is_split && source.weight == 1.0;
  }
  if (is_split && std::abs(handed_out - 1.0) <= 1e-9) {
    return {};
  }
  return fmt::format(
      "{} expects a self weight above 0 that sums to 1 with the destinations' weights, and "
      "sources of weight 1, so that each rank hands out all of what it has; found a self weight of "
      "{} and a sum of {}{}",
      row.name, plan.self_weight, handed_out,
      is_split ? "" : ", or weights that are none of those");
}

/// Before the row transforms it.
Schedule given_or_default(const DistributedOptimizerOptions& options, int size) {
  const AlgorithmRow& row = row_of(options.algorithm);
  return options.schedule       ? *options.schedule
         : row.default_schedule ? row.default_schedule(size)
                                : topology::static_schedule(topology::exponential(size));
}

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(const DistributedOptimizerOptions& options,
                                          Context& context, std::vector<Bucket>& buckets,
                                          EarlyStep early) {
  const AlgorithmRow& row = row_of(options.algorithm);
  std::unique_ptr<Algorithm> algorithm = row.make(
      {.context = context, .buckets = buckets, .options = options, .early = std::move(early)});
  if (!algorithm) {
    throw StateError(
        fmt::format("rank {}, DistributedOptimizer: expected an algorithm from the row of {}, "
                    "found a null pointer",
                    context.rank(), row.name));
  }
  return algorithm;
}

bool is_built_in(const AlgorithmRow& row) {
  return std::ranges::any_of(kBuiltInRows,
                             [&](const auto make_row) { return make_row().name == row.name; });
}

Schedule mixing_of(const DistributedOptimizerOptions& options, int size) {
  const AlgorithmRow& row = row_of(options.algorithm);
  Schedule schedule = given_or_default(options, size);
  return row.transform ? row.transform(std::move(schedule)) : schedule;
}

std::shared_ptr<const ops::Compression> compression_of(const DistributedOptimizerOptions& options) {
  const AlgorithmRow& row = row_of(options.algorithm);
  const auto listed = std::ranges::find(row.options, "compression", &AlgorithmOption::name);
  if (options.compression || listed == row.options.end()) {
    return options.compression;
  }
  const auto& name = std::get<std::string>(listed->default_value);
  return name == "none" ? nullptr : ops::compression_named(name);
}

Schedule schedule_named(const AlgorithmName& algorithm, std::string_view name,
                        const topology::FamilyOptions& options) {
  const std::vector<OwnSchedule>& own = row_of(algorithm).own_schedules;
  const auto found = std::ranges::find(own, name, &OwnSchedule::name);
  return found != own.end() ? found->make(options.size) : topology::make_schedule(name, options);
}

std::string why_invalid(const DistributedOptimizerOptions& options, int size) {
  const AlgorithmRow& row = row_of(options.algorithm);
  std::string problem = why_invalid_numbers(row, options);
  if (!problem.empty()) {
    return problem;
  }
  if (options.schedule && options.plans && !row.uses_windows) {
    return "plans: expected a schedule or plans, found both";
  }
  if (options.plans && row.mixing.is_fixed) {
    return fmt::format(
        "plans: {} expects the same W in every round, because {}, found a function of the round; "
        "use a static schedule",
        row.name, row.mixing.fixed_because);
  }
  if (options.schedule && options.schedule->size() != size) {
    return fmt::format("schedule: expected one for {} ranks, found one for {}", size,
                       options.schedule->size());
  }
  try {
    if (options.schedule) {
      problem = why_unfit(row, *options.schedule, options.row_sums);
    }
    // Options may ask too much of the schedule that is there without one.
    return problem.empty() && row.why_unfit_schedule && (options.schedule || !options.plans)
               ? row.why_unfit_schedule(options, given_or_default(options, size))
               : problem;
  } catch (const std::exception& error) {  // the schedule cannot make all of its rounds
    return fmt::format("schedule: {}", error.what());
  }
}

std::vector<ChosenNumber> chosen_numbers(const DistributedOptimizerOptions& options, int size) {
  const AlgorithmRow& row = row_of(options.algorithm);
  return row.choose_numbers && !options.plans
             ? row.choose_numbers(options, mixing_of(options, size))
             : std::vector<ChosenNumber>();
}

std::string why_untrainable(const AlgorithmRow& row, const NamedTensors& parameters) {
  if (row.full_precision_because.empty()) {
    return {};
  }
  for (const auto& [name, tensor] : parameters) {
    if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble) {
      return fmt::format("parameter '{}': {} expects float32 or float64, because {}, found {}",
                         name, row.name, row.full_precision_because, describe(tensor));
    }
  }
  return {};
}

std::string why_elsewhere(const NamedTensors& parameters, const Context& context) {
  const int used = context.core().device() ? context.core().device()->device() : -1;
  for (const auto& [name, tensor] : parameters) {
    const Device device = device_holding(tensor);
    if (device != device_holding(parameters.front().tensor)) {
      return fmt::format(
          "parameter '{}': expected all parameters on one device, found {}, and {} for '{}'", name,
          describe(tensor), describe(parameters.front().tensor), parameters.front().name);
    }
    if (device.kind == DeviceKind::Cpu) {
      continue;
    }
    if (device.index != used) {
      return fmt::format(
          "parameter '{}': expected a tensor on the CPU or on the device of the context "
          "(Context::use_device), {}, found {}",
          name, used < 0 ? "which has none" : fmt::format("CUDA device {}", used),
          describe(tensor));
    }
  }
  return {};
}

bool has_gradient_hooks(const DistributedOptimizerOptions& options) {
  return options.step_in_backward || row_of(options.algorithm).begins_in_backward;
}

std::string why_not_stepped(const DistributedOptimizerOptions& options,
                            const torch::optim::Optimizer& optimizer) {
  const bool evaluates = reevaluates(optimizer, options.evaluation());
  if (options.step_in_backward && (options.stepping == Stepping::Whole || evaluates)) {
    return "step_in_backward: expected an optimizer that is stepped by bucket, found one that is "
           "stepped as a whole";
  }
  if (evaluates && options.stepping == Stepping::ByBucket) {
    return "stepping: an optimizer that evaluates the model several times a step (LBFGS, or one "
           "whose step needs a closure) expects to be stepped as a whole, because its direction "
           "depends on all parameters at once, found by bucket";
  }
  const AlgorithmRow& row = row_of(options.algorithm);
  if (evaluates && !row.allows_reevaluation) {
    return fmt::format(
        "algorithm: an optimizer that evaluates the model several times a step (LBFGS, or one "
        "whose step needs a closure) expects {}, found {}",
        names_where([](const AlgorithmRow& other) { return other.allows_reevaluation; }), row.name);
  }
  return {};
}

std::string why_unfit(const DistributedOptimizerOptions& options, const NeighborPlan& plan,
                      const NeighborPlan* before) {
  const AlgorithmRow& row = row_of(options.algorithm);
  if (row.mixing.is_fixed) {
    return fmt::format("{} expects the same W in every round, found a plan for one round",
                       row.name);
  }
  std::string found;
  if (row.mixing.stochastic == Stochastic::Columns) {
    found = why_not_shares(row, plan);
  } else if (options.row_sums == RowSums::One) {
    found = why_no_average(row, plan);
  }
  return found.empty() && row.why_unfit_plan ? row.why_unfit_plan(options, plan, before) : found;
}

}  // namespace bluefog::optimizers
