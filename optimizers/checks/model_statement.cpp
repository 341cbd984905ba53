#include "optimizers/checks/model_statement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "optimizers/algorithm_row.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {
namespace {

std::string text_of(const NeighborPlan& plan) {
  std::string text = fmt::format("{} of itself", plan.self_weight);
  for (const WeightedRank& source : plan.sources) {
    text += fmt::format(", {} of rank {}", source.weight, source.rank);
  }
  for (const WeightedRank& destination : plan.destinations) {
    text += fmt::format(", {} to rank {}", destination.weight, destination.rank);
  }
  return text;
}

// One line for each rank of the first rounds, of which there are more the fewer ranks there are.
std::vector<std::string> lines_of(const Schedule& schedule) {
  constexpr std::int64_t kMostLines = 1024;
  constexpr std::int64_t kMostRounds = 16;
  const std::int64_t size = schedule.size();
  const std::int64_t rounds = std::clamp(std::min(kMostLines / size, schedule.period_steps()),
                                         std::int64_t{1}, kMostRounds);
  std::vector<std::string> lines{
      fmt::format("a schedule of {} ranks with period {}", size, schedule.period_steps())};
  for (std::int64_t round = 0; round < rounds; ++round) {
    const MixingMatrix w = schedule.mixing_matrix(round);
    for (int rank = 0; rank < size; ++rank) {
      lines.push_back(
          fmt::format("W({}) with rank {}: {}", round, rank, text_of(w.plan_for(rank))));
    }
  }
  return lines;
}

/// Without the device's number: each rank has a device of its own.
std::string describe_on_any_device(const at::Tensor& tensor) {
  std::string text = optimizers::describe(tensor);
  const std::string device = tensor.device().str();
  if (!tensor.is_cpu() && text.ends_with(device)) {
    text.replace(text.size() - device.size(), device.size(),
                 c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true));
  }
  return text;
}

/// With a length, which tells codes of one name apart.
std::string compression_line(const DistributedOptimizerOptions& options) {
  constexpr std::size_t kSomeValues = 10'000;
  const auto compression = compression_of(options);
  return compression == nullptr
             ? std::string("no compression")
             : fmt::format("compression {}, {} bytes for {} values", compression->name(),
                           compression->bytes_of(kSomeValues), kSomeValues);
}

}  // namespace

Statement statement_of(const ModelParameters& parameters,
                       const DistributedOptimizerOptions& options, std::int64_t bucket_bytes) {
  Statement statement;
  statement.lines = {
      fmt::format("algorithm {}", name_of(options.algorithm)),
      fmt::format("num_steps_per_communication {}", options.num_steps_per_communication),
      fmt::format("global_period_rounds {}", options.global_period_rounds),
      fmt::format("momentum {}", options.momentum),
      compression_line(options),
      fmt::format("bucket_bytes {}", bucket_bytes),
      fmt::format("step_in_backward {}", options.step_in_backward),
      fmt::format("buffer policy {}", name_of(options.buffers)),
      fmt::format("plans {}", options.plans ? "from a function" : "from a schedule"),
      fmt::format("row_sums {}", options.row_sums == RowSums::Any ? "any" : "one")};
  for (const AlgorithmOption& option : row_of(options.algorithm).options) {
    if (!option.is_field) {
      statement.lines.push_back(fmt::format("{} {}", option.name, number_of(options, option.name)));
    }
  }
  if (options.schedule) {
    try {
      std::ranges::move(lines_of(*options.schedule), std::back_inserter(statement.lines));
    } catch (const std::exception& error) {
      statement.problem = fmt::format("schedule: {}", error.what());
    }
  } else {
    statement.lines.emplace_back("the default schedule");
  }
  for (const auto& [name, tensor] : parameters.trained) {
    statement.lines.push_back(
        fmt::format("parameter '{}', {}, strides {}", name, describe_on_any_device(tensor),
                    tensor.is_nested() ? std::string("none") : shape_text(tensor.strides())));
  }
  for (const auto& [name, tensor] : parameters.frozen) {
    statement.lines.push_back(
        fmt::format("frozen parameter '{}', {}", name, describe_on_any_device(tensor)));
  }
  return statement;
}

}  // namespace bluefog::optimizers
