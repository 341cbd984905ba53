#include "examples/train_pipeline/epoch_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "examples/common/collect.hpp"
#include "ops/collectives.hpp"

namespace bluefog::examples {
namespace {

nlohmann::json json_of(const PipelineConfiguration& chosen) {
  return {{"model", chosen.model},
          {"stages", chosen.stages},
          {"schedule", chosen.schedule},
          {"costs", chosen.costs},
          {"micro_batches", chosen.micro_batches},
          {"try_micro_batches", chosen.try_micro_batches},
          {"replicas", chosen.replicas},
          {"freeze", chosen.freeze},
          {"by_gradients", chosen.by_gradients},
          {"alpha", chosen.alpha},
          {"repartition", chosen.repartition},
          {"shrink", chosen.shrink},
          {"cache", chosen.cache},
          {"cache_memory_mib", chosen.cache_memory_mib},
          {"cache_disk_mib", chosen.cache_disk_mib},
          {"cache_folder", chosen.cache_folder},
          {"epochs", chosen.epochs},
          {"batch_size", chosen.batch_size},
          {"lr", chosen.lr},
          {"layers", chosen.layers},
          {"width", chosen.width},
          {"heads", chosen.heads},
          {"patch", chosen.patch},
          {"tokens", chosen.tokens},
          {"pause_us", chosen.pause_us},
          {"seed", chosen.seed}};
}

/// The sum of a rank's steps.
StepRecord sum_of(std::span<const StepRecord> steps) {
  StepRecord sum;
  for (const StepRecord& step : steps) {
    sum.add(step);
  }
  return sum;
}

}  // namespace

EpochReport::EpochReport(Context& context, const std::filesystem::path& metrics)
    : context_(context),
      metrics_(context.rank() == 0 ? metrics : std::filesystem::path(),
               MetricsFile::Mode::Replace) {}

void EpochReport::print(const std::string& line) const {
  if (context_.rank() == 0) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
}

void EpochReport::begin(const PipelineConfiguration& configuration, const PipelineRunFacts& facts) {
  facts_ = facts;
  print(fmt::format("{}: {} training samples, {} test samples; {} parameters in {} layers",
                    facts.data_name, facts.train_samples, facts.test_samples, facts.parameters,
                    facts.layers));
  nlohmann::json line = json_of(configuration);
  line["event"] = "run";
  line["ranks"] = context_.size();
  line["data"] = facts.data_name;
  line["parameters"] = facts.parameters;
  metrics_.write(line);
}

std::vector<std::vector<StepRecord>> EpochReport::steps_of_all() {
  constexpr std::size_t kValues = PackedRecord{}.size();
  const auto ranks = static_cast<std::size_t>(context_.size());
  std::vector<double> values(steps_.size() * ranks * kValues, 0.0);
  auto next =
      values.begin() + static_cast<std::ptrdiff_t>(
                           steps_.size() * static_cast<std::size_t>(context_.rank()) * kValues);
  for (const StepRecord& step : steps_) {
    next = std::ranges::copy(packed(step), next).out;
  }
  ops::allreduce(context_, view_of(values),
                 {.name = "step records", .reduction = ops::Reduction::Sum});
  std::vector<std::vector<StepRecord>> found(ranks);
  auto begin = values.begin();
  for (auto& of_rank : found) {
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      PackedRecord record{};
      std::copy_n(begin, kValues, record.begin());
      begin += static_cast<std::ptrdiff_t>(kValues);
      of_rank.push_back(unpacked(record));
    }
  }
  return found;
}

void EpochReport::end_epoch(const PipelineEpoch& result) {
  const std::vector<std::vector<StepRecord>> all = steps_of_all();
  const auto count = static_cast<std::int64_t>(steps_.size());
  const std::int64_t rows = sum_of(steps_).rows;
  const double rate = static_cast<double>(rows) / std::max(result.seconds, 1e-9);
  print(fmt::format(
      "Epoch {}: {} x {} stages, {} of {} layers frozen, {:.1f} images/s, loss {:.4f}, test "
      "accuracy {:.2f} %",
      result.epoch, result.replicas, result.stages, result.frozen, facts_.layers, rate, result.loss,
      100 * result.accuracy));
  auto sums = nlohmann::json::array();
  for (int rank = 0; rank < context_.size(); ++rank) {
    const StepRecord sum = sum_of(all[static_cast<std::size_t>(rank)]);
    print(fmt::format("  rank {} (pipeline {}, stage {}): {}", rank, sum.replica, sum.stage,
                      breakdown_text(sum, count)));
    sums.push_back(examples::json_of(sum, rank));
  }
  for (std::int64_t step = 0; step < count; ++step) {
    auto ranks = nlohmann::json::array();
    for (int rank = 0; rank < context_.size(); ++rank) {
      ranks.push_back(examples::json_of(
          all[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)], rank));
    }
    metrics_.write({{"event", "step"},
                    {"epoch", result.epoch},
                    {"step", step + 1},
                    {"rows", steps_[static_cast<std::size_t>(step)].rows},
                    {"ranks", std::move(ranks)}});
  }
  metrics_.write({{"event", "epoch"},
                  {"epoch", result.epoch},
                  {"pipelines", result.replicas},
                  {"stages", result.stages},
                  {"frozen", result.frozen},
                  {"steps", count},
                  {"rows", rows},
                  {"seconds", result.seconds},
                  {"img_per_sec", rate},
                  {"train_loss", result.loss},
                  {"test_accuracy", result.accuracy},
                  {"ranks", std::move(sums)}});
  steps_.clear();
}

void EpochReport::end(const PipelineEpoch& last, double seconds, double memory_mib) {
  const std::vector<double> memory = collect(context_, memory_mib);
  print(fmt::format("{:.1f} s of training, test accuracy {:.2f} %, at most {:.0f} MiB a rank",
                    seconds, 100 * last.accuracy, *std::ranges::max_element(memory)));
  metrics_.write({{"event", "result"},
                  {"ranks", context_.size()},
                  {"seconds", seconds},
                  {"test_accuracy", last.accuracy},
                  {"memory_mib", memory}});
}

}  // namespace bluefog::examples
