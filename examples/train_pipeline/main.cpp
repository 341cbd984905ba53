// Trains a transformer on images or text in an elastic pipeline: layers freeze as they converge, the
// rest is packed into fewer stages, ranks that become free are further pipelines, and outputs of
// frozen layers are computed once.
//
//   bfrun -np 4 train_pipeline examples/pipeline_configurations/all.yaml
//   bfrun -np 4 train_pipeline --data cifar-100-binary examples/pipeline_configurations/cifar.yaml
//   bfrun -np 4 train_pipeline examples/pipeline_configurations/bert.yaml
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "examples/common/command_line.hpp"
#include "examples/common/run_main.hpp"
#include "examples/train_pipeline/configuration.hpp"
#include "examples/train_pipeline/pipeline_trainer.hpp"
#include "tools/command_line/number_checks.hpp"

namespace {

using namespace bluefog;            // NOLINT: a program, not a header
using namespace bluefog::examples;  // NOLINT
using command_line::whole_number;

constexpr std::uint64_t kMany = 1 << 30;

struct Choices {
  std::filesystem::path configuration;
  PipelineRunOptions run;
  int threads = 1;
};

void add_options(CLI::App& app, Choices& choices) {
  app.option_defaults()->always_capture_default();
  app.add_option("configuration", choices.configuration, "A YAML file; none: its defaults");
  app.add_option(
      "--data", choices.run.data,
      "Of the model vit: a folder with MNIST, Fashion-MNIST (IDX), CIFAR-10 or CIFAR-100 "
      "(binary) files; of bert: a file or folder of text. Default: what Debian has");
  app.add_option("--images", choices.run.images,
                 "So many of the training samples, for short runs; 0 is all")
      ->check(whole_number(0, kMany));
  app.add_option("--skip", choices.run.skip, "Leave out so many of the training samples, the first")
      ->check(whole_number(0, kMany));
  app.add_option("--test-images", choices.run.test_images, "Judge by so many; 0 is all")
      ->check(whole_number(0, kMany));
  app.add_option("--metrics", choices.run.metrics, "File for metrics, one JSON object a line");
  app.add_option("--start", choices.run.start,
                 "A model to go on from, which --save of a run of the same sizes has written");
  app.add_option("--save", choices.run.save, "File for the model, at the end");
  app.add_option("--threads", choices.threads, "Threads per rank; 0 leaves it to the launcher")
      ->check(whole_number(0, 1024));
}

int run(Context& context, const Choices& choices) {
  if (choices.threads > 0) {
    at::set_num_threads(choices.threads);
  }
  const PipelineConfiguration configuration = choices.configuration.empty()
                                                  ? PipelineConfiguration()
                                                  : read_configuration(choices.configuration);
  PipelineTrainer(context.shared_from_this(), choices.run, configuration).run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("train_pipeline", [&](Context& context) {
    Choices choices;
    CLI::App app("Trains a transformer on images or text in an elastic pipeline.",
                 "train_pipeline");
    add_options(app, choices);
    const auto code = parse_command_line(app, argc, argv, context);
    return code ? *code : run(context, choices);
  });
}
