#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "examples/train_images/metrics_file.hpp"
#include "examples/train_pipeline/configuration.hpp"
#include "examples/train_pipeline/step_record.hpp"

namespace bluefog::examples {

/// The facts about a run for its first lines.
struct PipelineRunFacts {
  std::string data_name;
  std::int64_t train_samples = 0;
  std::int64_t test_samples = 0;
  std::int64_t parameters = 0;
  int layers = 0;  ///< of the model
};

/// The results of an epoch, the same on all ranks.
struct PipelineEpoch {
  std::int64_t epoch = 0;  ///< from 1
  int replicas = 1;
  int stages = 1;
  int frozen = 0;
  double seconds = 0;  ///< of training
  double loss = 0;
  double accuracy = 0;
};

/// Tells the user and the metrics file how a run goes. Rank 0 prints and writes; every call is
/// collective unless it says otherwise.
class EpochReport {
 public:
  /// @throws InvalidArgument on rank 0 if the metrics file cannot be opened.
  EpochReport(Context& context, const std::filesystem::path& metrics);

  void begin(const PipelineConfiguration& configuration, const PipelineRunFacts& facts);
  /// Not collective: rank 0 prints the line.
  void print(const std::string& line) const;
  /// Not collective: this rank's step.
  void add(const StepRecord& step) { steps_.push_back(step); }
  /// The steps that were added, and what they led to.
  void end_epoch(const PipelineEpoch& result);
  /// Time and memory in all. @param memory_mib of this rank, what the run has taken at its peak.
  void end(const PipelineEpoch& last, double seconds, double memory_mib);

 private:
  [[nodiscard]] std::vector<std::vector<StepRecord>> steps_of_all();

  Context& context_;
  MetricsFile metrics_;
  PipelineRunFacts facts_;
  std::vector<StepRecord> steps_;
};

}  // namespace bluefog::examples
