#include "examples/train_images/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "examples/common/collect.hpp"
#include "examples/train_images/peak_memory.hpp"
#include "ops/collectives.hpp"

namespace bluefog::examples {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

nlohmann::json json_of(const TrainOptions& options) {
  return {{"model", options.model},
          {"algorithm", options.algorithm},
          {"algorithm_options", options.algorithm_options},
          {"topology", options.topology},
          {"optimizer", options.optimizer},
          {"buffers", options.buffers},
          {"batch_size", options.batch_size},
          {"epochs", options.epochs},
          {"local_steps", options.local_steps},
          {"learning_rate", options.learning_rate},
          {"momentum", options.momentum},
          {"weight_decay", options.weight_decay},
          {"seed", options.seed},
          {"shards", to_string(options.shards)},
          {"alpha", options.alpha}};
}

/// Rates of all ranks together, window by window; where ranks have come and gone, and have other
/// numbers of windows, the sum of their means.
RateSummary total_rate(Context& context, const Throughput& throughput) {
  std::vector<double> rates = throughput.window_rates();
  const auto counts = collect(context, static_cast<double>(rates.size()));
  if (std::ranges::adjacent_find(counts, std::ranges::not_equal_to()) != counts.end()) {
    const RateSummary own = summarize(rates);
    return {sum_over_ranks(context, own.mean),
            std::sqrt(sum_over_ranks(context, own.half_width * own.half_width))};
  }
  ops::AllreduceOptions sum;
  sum.reduction = ops::Reduction::Sum;
  ops::allreduce(context, view_of(rates), sum);
  return summarize(rates);
}

bool speaks_in(const Context& context) { return context.rank() == 0 && !context.is_applicant(); }

MetricsFile open_metrics(const Context& context, const TrainOptions& options) {
  return {speaks_in(context) ? options.metrics : std::filesystem::path(),
          options.resumes ? MetricsFile::Mode::Append : MetricsFile::Mode::Replace};
}

}  // namespace

Report::Report(std::shared_ptr<Context> context, const TrainOptions& options)
    : context_(std::move(context)),
      speaks_(speaks_in(*context_)),
      options_(options),
      metrics_(open_metrics(*context_, options)),
      progress_(speaks_ ? options.progress : ProgressKind::Off) {}

void Report::move_to(std::shared_ptr<Context> context) {
  context_ = std::move(context);
  if (!speaks_ && speaks_in(*context_)) {  // the one that spoke is lost
    metrics_ = MetricsFile(options_.metrics, MetricsFile::Mode::Append);
    progress_ = Progress(options_.progress);
    speaks_ = true;
  }
  say_members();
}

void Report::say_departure(std::int64_t epoch) {
  const int number = context_->membership().ranks[static_cast<std::size_t>(context_->rank())];
  progress_.print(fmt::format("rank {} has left in epoch {}", number, epoch + 1));
}

void Report::say_members() {
  const Membership& members = context_->membership();
  std::string news;
  for (const auto& loss : members.lost) {
    if (loss.epoch == members.epoch) {
      news += fmt::format("; without rank {}: {}", loss.rank, loss.cause);
    }
  }
  for (const auto& entry : members.joined) {
    if (entry.epoch == members.epoch) {
      news += fmt::format("; rank {} has joined", entry.rank);
    }
  }
  print(fmt::format("{} rank(s) train now{}", context_->size(), news));
  metrics_.write({{"event", "members"}, {"ranks", members.ranks}});
}

void Report::print(const std::string& line) {
  if (speaks()) {
    progress_.print(line);
  }
}

void Report::begin(const RunDescription& run) {
  const auto shards = collect(*context_, static_cast<double>(run.shard_images));
  print(fmt::format("{}: {} training images, {} test images; {} shards of {:.0f} images",
                    run.data_name, run.train_images, run.test_images, to_string(options_.shards),
                    fmt::join(shards, ", ")));
  print(fmt::format(
      "{} with {} parameters on {} rank(s): {} over {}, {} with step {}, {} images a "
      "rank and step, {} steps an epoch",
      options_.model, run.parameters, context_->size(), options_.algorithm, options_.topology,
      options_.optimizer, options_.learning_rate, options_.batch_size, run.steps_per_epoch));
  nlohmann::json line = json_of(options_);
  line["event"] = "run";
  line["ranks"] = context_->size();
  line["data"] = run.data_name;
  line["parameters"] = run.parameters;
  line["steps_per_epoch"] = run.steps_per_epoch;
  line["shard_images"] = shards;
  metrics_.write(line);
}

void Report::progress(const ProgressState& state) { progress_.update(state); }

void Report::watch_loss(std::int64_t epoch, std::int64_t step, double loss) {
  if (std::isfinite(loss) || first_bad_loss_.step != 0) {
    return;
  }
  first_bad_loss_ = {epoch + 1, step + 1};
  fmt::print(
      stderr,
      "train_images: rank {}: the loss is {} in epoch {}, step {}: training has diverged, or "
      "the data has such values; a smaller --lr may help\n",
      context_->rank(), std::isnan(loss) ? "not a number" : "infinite", epoch + 1, step + 1);
}

std::vector<Report::Moment> Report::first_bad_losses() {
  const auto epochs = collect(*context_, static_cast<double>(first_bad_loss_.epoch));
  const auto steps = collect(*context_, static_cast<double>(first_bad_loss_.step));
  std::vector<Moment> moments;
  for (std::size_t rank = 0; rank < epochs.size(); ++rank) {
    moments.push_back(
        {static_cast<std::int64_t>(epochs[rank]), static_cast<std::int64_t>(steps[rank])});
  }
  return moments;
}

// What a report needs of others is gathered before a line is said: it is made again where a rank is
// lost on the way.
void Report::end_epoch(const EpochResult& result) {
  const auto accuracies = collect(*context_, result.test_accuracy);
  const double train_loss = mean_of(collect(*context_, result.train_loss));
  const auto losses = collect(*context_, result.test_loss);
  const double rate = sum_over_ranks(*context_, result.images_per_second);
  print(
      fmt::format("epoch {}/{}: loss {:.3f}, test accuracy {:.2f} %, consensus distance {:.3g}, "
                  "{:.0f} img/s, {}",
                  result.epoch + 1, options_.epochs, train_loss, 100.0 * mean_of(accuracies),
                  result.consensus_distance, rate,
                  format_clock(std::chrono::duration<double>(result.seconds))));
  metrics_.write({{"event", "epoch"},
                  {"epoch", result.epoch + 1},
                  {"train_loss", train_loss},
                  {"test_accuracy", accuracies},
                  {"test_accuracy_mean", mean_of(accuracies)},
                  {"test_loss", losses},
                  {"consensus_distance", result.consensus_distance},
                  {"img_per_sec", rate},
                  {"seconds", result.seconds}});
}

void Report::end(const EpochResult& last, const Throughput& throughput) {
  const auto accuracies = collect(*context_, last.test_accuracy);
  const auto memory = collect(*context_, static_cast<double>(peak_resident_bytes()));
  const RateSummary rate = total_rate(*context_, throughput);
  const std::vector<Moment> moments = first_bad_losses();
  for (std::size_t rank = 0; rank < accuracies.size(); ++rank) {
    print(fmt::format("rank {}: test accuracy {:.2f} %, peak memory {:.0f} MiB", rank,
                      100.0 * accuracies[rank], memory[rank] / kMebibyte));
  }
  print(fmt::format("mean test accuracy {:.2f} %, consensus distance {:.4g}",
                    100.0 * mean_of(accuracies), last.consensus_distance));
  std::string bad_losses;
  auto not_finite_since = nlohmann::json::array();
  for (std::size_t rank = 0; rank < moments.size(); ++rank) {
    const auto [epoch, step] = moments[rank];
    not_finite_since.push_back(step == 0 ? nlohmann::json()
                                         : nlohmann::json{{"epoch", epoch}, {"step", step}});
    if (step != 0) {
      bad_losses += fmt::format("{}rank {} epoch {}, step {}", bad_losses.empty() ? "" : "; ", rank,
                                epoch, step);
    }
  }
  if (!bad_losses.empty()) {
    print("loss not finite since: " + bad_losses);
  }
  print(total_line(context_->size(), "CPU", rate));
  metrics_.write({{"event", "result"},
                  {"ranks", context_->size()},
                  {"test_accuracy", accuracies},
                  {"test_accuracy_mean", mean_of(accuracies)},
                  {"consensus_distance", last.consensus_distance},
                  {"loss_not_finite_since", not_finite_since},
                  {"img_per_sec", rate.mean},
                  {"img_per_sec_half_width", rate.half_width},
                  {"peak_memory_bytes", memory},
                  {"seconds", last.seconds}});
}

}  // namespace bluefog::examples
