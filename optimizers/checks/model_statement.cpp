#include "optimizers/checks/model_statement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "optimizers/algorithm_row.hpp"
#include "optimizers/checks/digest.hpp"
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

std::uint64_t digest_of(const MixingMatrix& w) {
  Digest digest;
  for (int rank = 0; rank < w.size(); ++rank) {
    for (const WeightedRank& entry : w.row(rank)) {
      digest.add(rank);
      digest.add(entry.rank);
      digest.add(entry.weight);
    }
  }
  return digest.value();
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

/// Numbers of many magnitudes, the same on every machine.
std::vector<float> some_values() {
  constexpr std::size_t kCount = 10'000;
  constexpr std::size_t kOfOneMagnitude = 100;
  constexpr int kMagnitudes = 24;
  std::vector<float> values(kCount);
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < kCount; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto drawn = static_cast<std::int32_t>(state >> 40U) - (1 << 23);  // all bits of a float
    values[i] =
        std::ldexp(static_cast<float>(drawn), -static_cast<int>(i / kOfOneMagnitude) % kMagnitudes);
  }
  return values;
}

/// With what the code makes of some values, which tells codes of one name apart.
std::string compression_line(const DistributedOptimizerOptions& options) {
  const auto compression = compression_of(options);
  if (compression == nullptr) {
    return "no compression";
  }
  std::vector<float> values = some_values();
  std::vector<std::byte> code(compression->bytes_of(values.size()));
  compression->encode(values, code);
  Digest digest;
  digest.add(std::span<const std::byte>(code));
  compression->decode(code, values);
  digest.add(std::as_bytes(std::span<const float>(values)));
  return fmt::format("compression {}, {} bytes for {} values, of digest {:016x}",
                     compression->name(), code.size(), values.size(), digest.value());
}

}  // namespace

std::int64_t compared_rounds(const Schedule& schedule) {
  constexpr std::int64_t kMostRows = 65'536;
  constexpr std::int64_t kMostRounds = 1'024;
  constexpr std::int64_t kRoundsOfLongPeriods = 64;
  const std::int64_t most = std::clamp(kMostRows / schedule.size(), std::int64_t{1}, kMostRounds);
  return schedule.period_steps() <= most ? schedule.period_steps()
                                         : std::min(most, kRoundsOfLongPeriods);
}

// More rounds with a line for each rank the fewer ranks there are, then one line for each round.
std::vector<std::string> round_lines(const Schedule& schedule, std::int64_t first,
                                     std::int64_t count) {
  constexpr std::int64_t kMostLines = 1024;
  constexpr std::int64_t kMostWrittenOut = 16;
  const std::int64_t size = schedule.size();
  const std::int64_t written_out = std::clamp(kMostLines / size, std::int64_t{1}, kMostWrittenOut);
  std::vector<std::string> lines;
  for (std::int64_t round = first; round < first + count; ++round) {
    const MixingMatrix w = schedule.mixing_matrix(round);
    if (round >= first + written_out) {
      lines.push_back(fmt::format("W({}) of digest {:016x}", round, digest_of(w)));
      continue;
    }
    for (int rank = 0; rank < size; ++rank) {
      lines.push_back(
          fmt::format("W({}) with rank {}: {}", round, rank, text_of(w.plan_for(rank))));
    }
  }
  return lines;
}

Statement statement_of(const ModelParameters& parameters,
                       const DistributedOptimizerOptions& options, std::int64_t bucket_bytes) {
  Statement statement;
  statement.lines = {
      fmt::format("algorithm {}", name_of(options.algorithm)),
      fmt::format("num_steps_per_communication {}", options.num_steps_per_communication),
      fmt::format("global_period_rounds {}", options.global_period_rounds),
      fmt::format("momentum {}", options.momentum),
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
  try {
    statement.lines.push_back(compression_line(options));
  } catch (const std::exception& error) {
    statement.problem = fmt::format("compression: {}", error.what());
  }
  if (options.schedule) {
    try {
      const Schedule& schedule = *options.schedule;
      statement.lines.push_back(fmt::format("a schedule of {} ranks with period {}",
                                            schedule.size(), schedule.period_steps()));
      std::ranges::move(round_lines(schedule, 0, compared_rounds(schedule)),
                        std::back_inserter(statement.lines));
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
