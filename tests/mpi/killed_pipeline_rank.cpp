// A rank of two pipelines of two stages is killed in the phase that the argument names (start,
// forward, backward, optimizer, evaluation, rearrange). The others must hear of it as PeerFailure, and make a
// pipeline over those that are left. Prints two lines per survivor.
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "pipeline/pipeline.hpp"

namespace {

constexpr int kVictim = 1;
constexpr int kStep = 3;

[[noreturn]] void die() {
  std::raise(SIGKILL);
  ::_exit(1);
}

/// The identity, in whose passes of step `kStep` the victim dies.
struct MineImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) {
    if (is_due && (phase == "forward" || phase == "evaluation")) {
      die();
    }
    at::Tensor output = input.clone();
    if (is_due && phase == "backward") {
      output.register_hook([](const at::Tensor& gradient) -> at::Tensor {
        die();
        return gradient;
      });
    }
    return output;
  }

  bool is_due = false;
  std::string_view phase;
};
TORCH_MODULE(Mine);

/// SGD that kills its rank.
struct LastStep : torch::optim::SGD {
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    if (is_due) {
      die();
    }
    return SGD::step(closure);
  }
  bool is_due = false;
};

constexpr double kRate = 0.01;
constexpr double kTolerance = 1e-5;  // of float32 values of size 1, after some steps

torch::nn::Sequential make_model(const Mine& mine) {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Linear(8, 8), mine,
                               torch::nn::Linear(8, 2));
}

at::Tensor inputs() { return at::linspace(-1, 1, 32).view({8, 4}); }

/// Whether the stage's parameters are those of one process that has trained as long.
void check_training(const bluefog::pipeline::Pipeline& pipeline) {
  auto alone = make_model(Mine());
  torch::optim::SGD sgd(alone->parameters(), torch::optim::SGDOptions(kRate));
  for (int step = 0; step < 2 * kStep; ++step) {
    sgd.zero_grad();
    torch::mse_loss(alone->forward(inputs()), at::ones({8, 2})).backward();
    sgd.step();
  }
  for (const auto& [name, tensor] : pipeline.trained_parameters()) {
    const double off = (tensor - alone->named_parameters()[name]).abs().max().item<double>();
    if (!(off <= kTolerance)) {
      throw std::runtime_error(name + " is off by " + std::to_string(off));
    }
  }
}

/// @param phase of the step in which rank 1 dies; empty: none.
void train(const std::shared_ptr<bluefog::Context>& context, int stages, std::string_view phase) {
  const bool is_victim = context->rank() == kVictim && !phase.empty();
  if (is_victim && phase == "start") {
    die();
  }
  Mine mine;
  mine->phase = phase;
  auto model = make_model(mine);
  bluefog::pipeline::Pipeline pipeline(context, model.ptr(),
                                       [](const at::Tensor& outputs, const at::Tensor& targets) {
                                         return torch::mse_loss(outputs, targets);
                                       },
                                       {.stages = stages, .micro_batches = 4});
  LastStep optimizer(model->parameters(), torch::optim::SGDOptions(kRate));
  for (int step = 0; step < 2 * kStep; ++step) {
    const bool is_due = is_victim && step == kStep;
    mine->is_due = is_due;
    optimizer.is_due = is_due && phase == "optimizer";
    if (step == kStep && phase == "evaluation") {
      static_cast<void>(pipeline.evaluate({.inputs = inputs(), .rows = 8}));
    }
    pipeline.step(optimizer, {.inputs = inputs(), .targets = at::ones({8, 2}), .rows = 8});
    if (step == kStep && phase == "rearrange") {
      if (is_victim) {
        die();
      }
      pipeline.rearrange({.stages = 1, .frozen = 1}, optimizer);
    }
  }
  if (phase.empty()) {
    check_training(pipeline);
  }
}

}  // namespace

int main(int /*count*/, char** arguments) {
  const auto context = bluefog::Context::create();
  try {
    train(context, 2, arguments[1]);
  } catch (const bluefog::PeerFailure& failure) {
    std::printf("survivor %d heard of rank %d: %s\n", context->rank(), failure.rank(),
                failure.what());
    std::fflush(stdout);
    const auto smaller = context->shrink();
    train(smaller, smaller->size(), "");
    std::printf("survivor %d trained in a pipeline of %d stages\n", context->rank(),
                smaller->size());
    std::fflush(stdout);
    return 0;
  } catch (const std::exception& error) {
    std::printf("rank %d ended otherwise: %s\n", context->rank(), error.what());
    return 3;
  }
  std::printf("rank %d ended without an error\n", context->rank());
  return 4;
}
