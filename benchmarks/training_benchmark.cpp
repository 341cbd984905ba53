// Times training steps of each algorithm against the same steps without communication.
//
// Every algorithm has a model and an optimizer of its own; they take turns within one run, a few
// steps each, so that a machine whose speed wanders treats them alike. The slowest rank counts.
// Images are random: how fast a step is does not depend on them.
//
//   bfrun -np 2 training_benchmark --model resnet18 --algorithms atc,awc
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/common/named_algorithm.hpp"
#include "examples/common/named_schedule.hpp"
#include "examples/common/run_main.hpp"
#include "examples/models/image_model.hpp"
#include "ops/collectives.hpp"
#include "optimizers/distributed_optimizer.hpp"

namespace {

using namespace bluefog;            // NOLINT: a program, not a header
using namespace bluefog::examples;  // NOLINT
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = "cnn";
  std::string topology = "exponential";
  std::vector<std::string> algorithms{"atc", "awc", "gradient_allreduce"};
  std::int64_t batch_size = 64;
  int rounds = 15;
  int steps = 10;
  bool as_json = false;
};

/// One algorithm with its model.
class Contestant {
 public:
  Contestant(const std::shared_ptr<Context>& context, std::string name, const Options& options)
      : name_(std::move(name)), batch_size_(options.batch_size) {
    torch::manual_seed(1);
    const ModelShape shape;
    model_ = make_model(options.model, shape);
    sgd_ = std::make_unique<torch::optim::SGD>(model_->parameters(),
                                               torch::optim::SGDOptions(0.01).momentum(0.9));
    optimizers::DistributedOptimizerOptions distributed;
    distributed.algorithm = algorithm_of(name_);
    distributed.schedule = make_schedule(options.topology, context->size());
    optimizer_ =
        std::make_unique<optimizers::DistributedOptimizer>(context, *sgd_, *model_, distributed);
    images_ = torch::randn({batch_size_, shape.in_channels, shape.image_size, shape.image_size});
    labels_ = torch::randint(shape.num_classes, {batch_size_}, torch::kLong);
  }

  [[nodiscard]] const std::string& name() const { return name_; }

  /// Collective. Images per second of all ranks together.
  double run(Context& context, int steps) {
    ops::barrier(context);
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) {
      optimizer_->zero_grad();
      torch::nn::functional::cross_entropy(model_->forward(images_), labels_).backward();
      optimizer_->step();
    }
    optimizer_->drain();
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::vector<double> all(static_cast<std::size_t>(context.size()));
    ops::allgather(context, {&seconds, 1, Dtype::Float64}, [&](const auto& counts) {
      return BufferView{all.data(), static_cast<std::int64_t>(counts.size()), Dtype::Float64};
    });
    seconds = *std::max_element(all.begin(), all.end());
    return static_cast<double>(batch_size_ * steps * context.size()) / seconds;
  }

 private:
  std::string name_;
  std::int64_t batch_size_;
  std::shared_ptr<ImageModel> model_;
  std::unique_ptr<torch::optim::SGD> sgd_;
  std::unique_ptr<optimizers::DistributedOptimizer> optimizer_;
  at::Tensor images_;
  at::Tensor labels_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void report(const Options& options, int size, const std::vector<std::string>& names,
            const std::vector<std::vector<double>>& rates) {
  std::vector<double> none;
  for (const auto& round : rates) {
    none.push_back(round.front());
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::vector<double> own;
    std::vector<double> shares;
    for (std::size_t r = 0; r < rates.size(); ++r) {
      own.push_back(rates[r][i]);
      shares.push_back(rates[r][i] / none[r]);
    }
    if (options.as_json) {
      std::printf("%s\n", nlohmann::json{{"ranks", size},
                                         {"model", options.model},
                                         {"batch_size", options.batch_size},
                                         {"algorithm", names[i]},
                                         {"images_per_second", median(own)},
                                         {"share_of_none", median(shares)}}
                              .dump()
                              .c_str());
    } else {
      std::printf("%-20s median %8.1f img/sec on %d CPU(s), %5.3f of none\n", names[i].c_str(),
                  median(own), size, median(shares));
    }
  }
  std::fflush(stdout);
}

int run(const std::shared_ptr<Context>& context, int argc, char** argv) {
  Options options;
  CLI::App app{"Training steps of each algorithm against steps without communication"};
  app.add_option("--model", options.model, "cnn, resnet18 or resnet50");
  app.add_option("--topology", options.topology, "Who averages with whom");
  app.add_option("--algorithms", options.algorithms, "Beside none")->delimiter(',');
  app.add_option("--batch-size", options.batch_size, "Images per rank and step")
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "Turns of each algorithm")->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "Steps per turn")->check(CLI::PositiveNumber);
  app.add_flag("--json", options.as_json, "One JSON object per line instead of a table");
  CLI11_PARSE(app, argc, argv);

  std::vector<std::string> names{"none"};
  names.insert(names.end(), options.algorithms.begin(), options.algorithms.end());
  std::vector<Contestant> contestants;
  for (const auto& name : names) {
    contestants.emplace_back(context, name, options);
  }
  std::vector<std::vector<double>> rates;
  for (int round = -1; round < options.rounds; ++round) {
    std::vector<double> now;
    for (auto& contestant : contestants) {
      now.push_back(contestant.run(*context, round < 0 ? 2 : options.steps));
    }
    if (round >= 0) {  // before that: first steps, which allocate
      rates.push_back(std::move(now));
    }
  }
  if (context->rank() == 0) {
    report(options, context->size(), names, rates);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("training_benchmark",
                  [&](Context& context) { return run(context.shared_from_this(), argc, argv); });
}
