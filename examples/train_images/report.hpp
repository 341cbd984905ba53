#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "examples/train_images/metrics_file.hpp"
#include "examples/train_images/options.hpp"
#include "examples/train_images/progress.hpp"
#include "examples/train_images/throughput.hpp"

namespace bluefog::examples {

/// The facts about a run for its first lines.
struct RunDescription {
  std::string data_name;
  std::int64_t train_images = 0;
  std::int64_t test_images = 0;
  std::int64_t shard_images = 0;  ///< of this rank
  std::int64_t parameters = 0;
  std::int64_t steps_per_epoch = 0;
};

/// The results of this rank at the end of an epoch.
struct EpochResult {
  std::int64_t epoch = 0;  ///< from 0
  double train_loss = 0.0;
  double test_accuracy = 0.0;
  double test_loss = 0.0;
  double images_per_second = 0.0;
  double seconds = 0.0;             ///< since the run began
  double consensus_distance = 0.0;  ///< the same on every rank
};

/// Tells the user and the metrics file how a run goes. Rank 0 prints; the other ranks give their
/// numbers, so that every call is collective unless it says otherwise.
class Report {
 public:
  /// @param context of the ranks; of a process that waits to join them its own, in which it says
  ///   nothing.
  /// @throws InvalidArgument on rank 0 if the metrics file cannot be opened.
  Report(std::shared_ptr<Context> context, const TrainOptions& options);

  /// Not collective: the ranks have become others, of which the lowest goes on with what is said.
  void move_to(std::shared_ptr<Context> context);
  /// Not collective: this rank has left in that epoch, from 0.
  void say_departure(std::int64_t epoch);

  void begin(const RunDescription& run);
  /// Not collective: this rank's view.
  void progress(const ProgressState& state);
  /// Not collective: this rank's loss in a step; both counts from 0. Warns on standard error of the
  /// first loss that is not finite.
  void watch_loss(std::int64_t epoch, std::int64_t step, double loss);
  void end_epoch(const EpochResult& result);
  /// The final figures: accuracy by rank and mean, consensus distance, images per second, memory,
  /// and since when a loss was not finite.
  void end(const EpochResult& last, const Throughput& throughput);

 private:
  /// A moment, counted from 1; 0: there is none.
  struct Moment {
    std::int64_t epoch = 0;
    std::int64_t step = 0;
  };

  /// The first bad loss of each rank. Collective.
  [[nodiscard]] std::vector<Moment> first_bad_losses();
  [[nodiscard]] bool speaks() const noexcept { return speaks_; }
  void print(const std::string& line);
  /// Says who has been lost and who has joined in the group's present epoch.
  void say_members();

  std::shared_ptr<Context> context_;
  bool speaks_;
  TrainOptions options_;
  MetricsFile metrics_;
  Progress progress_;
  Moment first_bad_loss_;
};

}  // namespace bluefog::examples
