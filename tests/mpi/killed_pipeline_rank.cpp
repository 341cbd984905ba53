// A rank of two pipelines of two stages is killed in the phase of a step that the argument names
// (forward, backward, optimizer, rearrange). The others must hear of it as PeerFailure, and make a
// pipeline over those that are left. Prints two lines per survivor.
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
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
    if (is_due && phase == "forward") {
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

/// @param phase of the step in which rank 1 dies; empty: none.
void train(const std::shared_ptr<bluefog::Context>& context, int stages, std::string_view phase) {
  torch::manual_seed(1);
  Mine mine;
  mine->phase = phase;
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::Linear(8, 8), mine,
                              torch::nn::Linear(8, 2));
  bluefog::pipeline::Pipeline pipeline(context, model.ptr(),
                                       [](const at::Tensor& outputs, const at::Tensor& targets) {
                                         return torch::mse_loss(outputs, targets);
                                       },
                                       {.stages = stages, .micro_batches = 4});
  LastStep optimizer(model->parameters(), torch::optim::SGDOptions(0.01));
  const bool is_victim = context->rank() == kVictim && !phase.empty();
  for (int step = 0; step < 2 * kStep; ++step) {
    const bool is_due = is_victim && step == kStep;
    mine->is_due = is_due;
    optimizer.is_due = is_due && phase == "optimizer";
    pipeline.step(optimizer, {.inputs = at::ones({8, 4}), .targets = at::ones({8, 2}), .rows = 8});
    if (step == kStep && phase == "rearrange") {
      if (is_victim) {
        die();
      }
      pipeline.rearrange({.stages = 1, .frozen = 1}, optimizer);
    }
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
