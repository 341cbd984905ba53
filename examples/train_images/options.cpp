#include "examples/train_images/options.hpp"

#include <CLI/CLI.hpp>
#include <limits>
#include <map>
#include <utility>

#include "examples/common/option_words.hpp"
#include "tools/command_line/number_checks.hpp"

namespace bluefog::examples {
namespace {

using command_line::Bound;
using command_line::number;
using command_line::whole_number;

const std::map<std::string, ShardKind>& shard_kinds() {
  static const std::map<std::string, ShardKind> kKinds{{"iid", ShardKind::Iid},
                                                       {"dirichlet", ShardKind::Dirichlet}};
  return kKinds;
}

const std::map<std::string, ProgressKind>& progress_kinds() {
  static const std::map<std::string, ProgressKind> kKinds{{"auto", ProgressKind::Auto},
                                                          {"live", ProgressKind::Live},
                                                          {"lines", ProgressKind::Lines},
                                                          {"off", ProgressKind::Off}};
  return kKinds;
}

constexpr std::uint64_t kMany = 1 << 30;
/// Beyond it float32, in which models are computed, soon knows infinity alone.
constexpr double kLargest = 1e38;

void add_training(CLI::App& app, TrainOptions& options, const OptionNames& names) {
  app.add_option("--model", options.model, "Model")->check(one_of(names.models));
  app.add_option("--algorithm", options.algorithm, "How ranks combine their models")
      ->check(one_of(names.algorithms));
  add_algorithm_option(app, options.algorithm_options, [&options, &names] {
    return names.why_no_options ? names.why_no_options(options.algorithm_options, options.algorithm)
                                : std::string();
  });
  app.add_option(
         "--topology", options.topology,
         "Who averages with whom, by name or as a file of lines 'i j [weight]'; default: as "
         "suits the algorithm")
      ->check(one_of_or_edge_file(names.topologies));
  app.add_option("--optimizer", options.optimizer, "Optimizer that each rank steps with")
      ->check(one_of(names.optimizers));
  app.add_option("--buffers", options.buffers, "What happens to batch-norm statistics")
      ->check(one_of(names.buffer_policies));
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")
      ->check(whole_number(1, 65'536));
  app.add_option("--epochs", options.epochs, "Passes over the data")->check(whole_number(1, kMany));
  app.add_option("--max-batches", options.max_batches, "Steps per epoch at most; 0 is no limit")
      ->check(whole_number(0, kMany));
  app.add_option("--local-steps", options.local_steps, "One step in so many communicates")
      ->check(whole_number(1, kMany));
  app.add_option("--lr", options.learning_rate, "Learning rate")
      ->check(number({.at_low = Bound::Excluded, .high = kLargest}));
  app.add_option("--momentum", options.momentum,
                 "Momentum of sgd and rmsprop, or of decent-lam and qg-dsgdm")
      ->check(number({.high = 1.0, .at_high = Bound::Excluded}));
  app.add_option("--weight-decay", options.weight_decay, "Weight decay")
      ->check(number({.high = kLargest}));
  app.add_option("--seed", options.seed, "Seed of the model, the shards and the batches")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
}

void add_data(CLI::App& app, TrainOptions& options) {
  app.add_option("--data", options.data,
                 "Folder with MNIST, Fashion-MNIST (IDX), CIFAR-10 or CIFAR-100 (binary) files");
  app.add_option("--shards", options.shards, "Split of the images: iid or dirichlet")
      ->transform(one_of(shard_kinds()))
      ->type_name("TEXT:{iid,dirichlet}")
      ->default_str("iid");
  app.add_option("--alpha", options.alpha, "Dirichlet parameter; smaller is more skewed")
      ->check(number({.at_low = Bound::Excluded, .high = 1e9}));
  app.add_flag("--augment", options.augments, "Crop and mirror training images at random");
  app.add_option("--max-test-images", options.max_test_images,
                 "Judge by so many test images; 0 is all")
      ->check(whole_number(0, kMany));
}

void add_files(CLI::App& app, TrainOptions& options) {
  auto* checkpoint =
      app.add_option("--checkpoint", options.checkpoint,
                     "Save the state after each epoch as FILE.rank0.pt, FILE.rank1.pt, …");
  app.add_flag("--resume", options.resumes, "Go on from the state in the checkpoint files")
      ->needs(checkpoint);
  app.add_option("--metrics", options.metrics, "File for metrics, one JSON object a line");
  app.add_option("--threads", options.threads, "Threads per rank; 0 leaves it to the launcher")
      ->check(whole_number(0, 1024));
  app.add_option("--progress", options.progress, "Progress: auto, live, lines or off")
      ->transform(one_of(progress_kinds()))
      ->type_name("TEXT:{auto,live,lines,off}")
      ->default_str("auto");
}

}  // namespace

ParsedOptions parse_train_options(int argc, const char* const* argv, const OptionNames& names) {
  ParsedOptions parsed;
  CLI::App app("Trains an image classifier on every rank, each on its share of the images.",
               "train_images");
  app.option_defaults()->always_capture_default();
  add_training(app, parsed.options, names);
  add_data(app, parsed.options);
  add_files(app, parsed.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    CommandLineEnd end = end_of(app, error);
    parsed.exit_code = end.exit_code;
    parsed.text = std::move(end.text);
  }
  return parsed;
}

std::string to_string(ShardKind kind) { return kind == ShardKind::Iid ? "iid" : "dirichlet"; }

}  // namespace bluefog::examples
