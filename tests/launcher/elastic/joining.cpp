// joining WAY [MOST]: ranks train by an ElasticSampler until another one has joined, and for two epochs
// more, and look whether they draw all samples of an epoch together, the one of the entry included.
//
// WAY: killed (rank 1 ends on the way, and is started again), grown (nobody ends). At most MOST seconds,
// 60 by default. Prints a line for each rank that comes to the end.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/elastic_sampler.hpp"
#include "optimizers/parameter_collectives.hpp"

namespace {

using namespace bluefog;  // NOLINT: a program, not a header

constexpr std::int64_t kSamples = 203;
constexpr std::int64_t kBatch = 5;
constexpr int kEpochsTogether = 2;
constexpr int kStepOfEnd = 10;

class Run {
 public:
  explicit Run(std::string way)
      : way_(std::move(way)),
        context_(Context::create()),
        joins_(context_->is_applicant()),
        rank_(std::atoi(std::getenv("RANK"))),
        sampler_(kSamples, *context_, {.seed = 7}) {
    torch::manual_seed(joins_ ? 5 : 1);
    model_ = torch::nn::Linear(4, 1);
    optimizers::broadcast_parameters(*context_, *model_);
    sgd_ = std::make_unique<torch::optim::SGD>(model_->parameters(), 0.01);
    optimizers::DistributedOptimizerOptions options;
    options.when_shrunk = [this](const std::shared_ptr<Context>& now) { sampler_.deal_anew(*now); };
    optimizer_ =
        std::make_unique<optimizers::DistributedOptimizer>(context_, *sgd_, *model_, options);
  }

  int train(std::chrono::seconds most) {
    optimizer_->join();
    if (joins_) {  // in the last step of an epoch too, after which it has no step of its own there
      last_ = sampler_.epoch() + kEpochsTogether;
    }
    const auto end = std::chrono::steady_clock::now() + most;
    for (std::int64_t epoch = sampler_.epoch(); last_ < 0 || epoch <= last_; ++epoch) {
      sampler_.begin(epoch);
      seen_.assign(kSamples, 0.0F);
      has_lost_ = false;
      for (auto batch = sampler_.next(kBatch); !batch.empty(); batch = sampler_.next(kBatch)) {
        step(batch, epoch);
      }
      if (last_ >= 0) {
        look_at(epoch);
      }
      if (std::chrono::steady_clock::now() > end) {
        throw Error("nobody has joined");
      }
    }
    return say();
  }

 private:
  void step(const std::vector<std::int64_t>& batch, std::int64_t epoch) {
    if (way_ == "killed" && rank_ == 1 && !joins_ && steps_ == kStepOfEnd) {
      kill(getpid(), SIGKILL);
    }
    std::vector<float> inputs;
    for (const std::int64_t sample : batch) {
      ++seen_[static_cast<std::size_t>(sample)];
      inputs.insert(inputs.end(), 4, static_cast<float>(sample) / kSamples);
    }
    optimizer_->zero_grad();
    model_->forward(torch::tensor(inputs).view({-1, 4})).square().mean().backward();
    const std::size_t lost = optimizer_->context().membership().lost.size();
    optimizer_->step();
    ++steps_;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Membership& now = optimizer_->context().membership();
    has_lost_ = has_lost_ || now.lost.size() != lost;
    if (last_ < 0 && !now.joined.empty()) {
      last_ = epoch + kEpochsTogether;
    }
  }

  /// Collective: every sample of the epoch has been drawn, and about as often as any other.
  void look_at(std::int64_t epoch) {
    Context& context = optimizer_->context();
    std::vector<float> all = seen_;
    ops::allreduce(context, BufferView{.data = all.data(), .count = kSamples},
                   {.reduction = ops::Reduction::Sum});
    float drawn = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      drawn += all[i];
      if (all[i] < 1 && !has_lost_) {
        throw Error(fmt::format("epoch {}: expected sample {} to be drawn", epoch, i));
      }
    }
    if (drawn > kSamples + 3.0F * static_cast<float>(context.size())) {
      throw Error(fmt::format("epoch {}: expected {} samples, found {}", epoch, kSamples, drawn));
    }
    ++looks_;
  }

  int say() {
    const Context& context = optimizer_->context();
    const Membership& members = context.membership();
    const float weight = model_->weight.sum().item<float>();
    optimizer_->finish();
    fmt::print("rank {} of {}: ranks {}, lost {}, joined {}, looked at {} epochs, {} hosts, {}\n",
               members.ranks[static_cast<std::size_t>(context.rank())], context.size(),
               fmt::join(members.ranks, " "), members.lost.size(), members.joined.size(), looks_,
               context.machines().machine_count(), std::isfinite(weight) ? "trained" : "broken");
    std::fflush(stdout);
    return 0;
  }

  std::string way_;
  std::shared_ptr<Context> context_;
  bool joins_;
  int rank_;
  optimizers::ElasticSampler sampler_;
  torch::nn::Linear model_{nullptr};
  std::unique_ptr<torch::optim::SGD> sgd_;
  std::unique_ptr<optimizers::DistributedOptimizer> optimizer_;
  std::vector<float> seen_;
  std::int64_t last_ = -1;
  int steps_ = 0;
  int looks_ = 0;
  bool has_lost_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMost = 60;
  if (argc < 2) {
    return 2;
  }
  try {
    return Run(argv[1]).train(std::chrono::seconds(argc > 2 ? std::atoi(argv[2]) : kMost));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
