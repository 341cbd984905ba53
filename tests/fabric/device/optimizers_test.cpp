// Trainings of models on devices, over the stand-ins, give the bits of trainings on the CPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/device/cuda/handles.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/consensus.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "tests/support/gpu/torch_stand_in.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

struct Training {
  std::string name;
  DistributedOptimizerOptions options;
  /// Ranks step one after the other: where nobody waits, what a rank reads is known only so.
  bool in_turn = false;
  /// Rank r makes so many steps more than rank 0, which leaves before.
  int more_steps = 0;
  /// Rank 0 has no gradient of the second layer in some steps, and nobody has one in others.
  bool lacks_gradients = false;
  at::ScalarType dtype = at::kFloat;
};

std::vector<Training> trainings() {
  const auto of = [](AlgorithmName kind) {
    return DistributedOptimizerOptions{.algorithm = kind, .bucket_bytes = 128};
  };
  std::vector<Training> all{
      {.name = "gradient_allreduce", .options = of(AlgorithmName::GradientAllreduce)},
      {.name = "gradient_allreduce, some missing",
       .options = of(AlgorithmName::GradientAllreduce),
       .lacks_gradients = true},
      {.name = "adapt_then_combine", .options = of(AlgorithmName::AdaptThenCombine)},
      {.name = "adapt_then_combine in backward", .options = of(AlgorithmName::AdaptThenCombine)},
      {.name = "adapt_with_combine", .options = of(AlgorithmName::AdaptWithCombine)},
      {.name = "gossip_pga", .options = of(AlgorithmName::GossipPga)},
      {.name = "local_sgd", .options = of(AlgorithmName::LocalSgd)},
  };
  all[3].options.step_in_backward = true;
  all[5].options.global_period_rounds = 2;
  all[6].options.num_steps_per_communication = 2;
  for (const AlgorithmName kind :
       {AlgorithmName::Extra, AlgorithmName::ExactDiffusion, AlgorithmName::D2,
        AlgorithmName::GradientTracking, AlgorithmName::PushSum, AlgorithmName::DmSgd,
        AlgorithmName::DecentLam, AlgorithmName::QuasiGlobalMomentum, AlgorithmName::SlowMo,
        AlgorithmName::DiLoCo, AlgorithmName::StreamingDiLoCo, AlgorithmName::GossipDiLoCo,
        AlgorithmName::NoLoCo, AlgorithmName::AcceleratedGossip}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      if (kind == AlgorithmName::PushSum && dtype != at::kFloat && dtype != at::kDouble) {
        continue;  // refused: weights need more digits
      }
      all.push_back({.name = fmt::format("{}, {}", name_of(kind), c10::toString(dtype)),
                     .options = of(kind),
                     .dtype = dtype});
      if (optimizers::row_of(kind).reads("momentum")) {
        all.back().options.momentum = 0.4;
      }
    }
  }
  for (const AlgorithmName kind :
       {AlgorithmName::WinPut, AlgorithmName::PullGet, AlgorithmName::AsyncPushSum}) {
    for (const int more_steps : {0, 2}) {
      all.push_back({.name = std::string(name_of(kind)) + (more_steps > 0 ? ", some longer" : ""),
                     .options = of(kind),
                     .in_turn = true,
                     .more_steps = more_steps});
    }
  }
  return all;
}

/// The same numbers for the same arguments, none of which is a short fraction.
at::Tensor numbers(at::IntArrayRef sizes, int first) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  return (at::arange(first, first + count, at::kFloat) * 0.7F).sin().reshape(sizes);
}

struct Net : torch::nn::Module {
  explicit Net(int seed)
      : first(register_module("first", torch::nn::Linear(6, 5))),
        second(register_module("second", torch::nn::Linear(5, 3))) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(numbers(parameter.sizes(), seed += 100));
    }
  }
  /// @param has_second whether the second layer takes part.
  at::Tensor loss(const at::Tensor& x, bool has_second = true) {
    const at::Tensor hidden = first(x).tanh();
    return has_second ? second(hidden).square().sum() : hidden.square().sum();
  }
  torch::nn::Linear first;
  torch::nn::Linear second;
};

/// One rank's model when it has been trained there.
/// @param begins called before each step.
std::vector<at::Tensor> trained(
    Context& context, const at::Device& device, const Training& training,
    const std::function<void()>& begins = [] {}) {
  const int rank = context.rank();
  const int steps = 5 + rank * training.more_steps;
  const int most_steps = 5 + (context.size() - 1) * training.more_steps;
  Net net(17 * rank);
  net.to(device, training.dtype);
  const bool has_own_momentum = training.options.momentum > 0.0;
  torch::optim::SGD sgd(net.parameters(),
                        torch::optim::SGDOptions(0.05).momentum(has_own_momentum ? 0.0 : 0.5));
  auto optimizer = std::make_unique<DistributedOptimizer>(context.shared_from_this(), sgd, net,
                                                          training.options);
  const auto step = [&](int number) {
    begins();
    optimizer->zero_grad();
    const bool has_second =
        !training.lacks_gradients || number == 0 || (rank > 0 && number % 2 == 1);
    net.loss(numbers({4, 6}, 31 * number + rank).to(device, training.dtype), has_second).backward();
    optimizer->step();
    if (number + 1 == steps) {
      optimizer->finish();
      if (training.more_steps > 0) {
        optimizer.reset();
      }
    }
  };
  for (int number = 0; number < most_steps; ++number) {
    if (number == 3 && training.more_steps == 0) {
      meet(context);
      optimizer->restart();  // drops what has come in
      meet(context);
    }
    for (int turn = 0; turn < (training.in_turn ? context.size() : 1); ++turn) {
      if (number < steps && (turn == rank || !training.in_turn)) {
        step(number);
      }
      if (training.in_turn) {
        meet(context);
      }
    }
  }
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : net.parameters()) {
    result.push_back(parameter.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
  }
  meet(context);
  return result;
}

void expect_the_bits_of_the_cpu(DeviceRank& rank, const Training& training) {
  TorchDevice torch_device(rank.shared_cuda(), rank.context.rank(), rank.stream);
  const auto for_cpu = rank.context.duplicate();
  const std::vector<at::Tensor> expected = trained(*for_cpu, at::kCPU, training);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(rank.context.rank()));
  // Each step is on another stream than the one before, in which a round may have begun.
  const std::vector<at::Tensor> found = trained(
      rank.context, device, training, [&] { torch_device.change_stream(rank.cuda.make_stream()); });
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].equal(expected[i])) << training.name << ", parameter " << i << ": found "
                                             << found[i] << ", expected " << expected[i];
  }
}

class DeviceOptimizers : public ::testing::TestWithParam<std::size_t> {
 protected:
  static void run(Reach reach) {
    const Training training = trainings()[GetParam()];
    SCOPED_TRACE(training.name);
    // Windows, whose ranks step in turn, may have their buffers on devices.
    const bool hosts_order = training.in_turn && reach == Reach::PeerProcesses;
    on_device_ranks({.at_most = 4, .reach = reach, .hosts_order = hosts_order},
                    [&](DeviceRank& rank) { expect_the_bits_of_the_cpu(rank, training); });
  }
};

TEST_P(DeviceOptimizers, ByNccl) { run(Reach::Nccl); }
TEST_P(DeviceOptimizers, ByCopiesBetweenDevices) { run(Reach::PeerProcesses); }
TEST_P(DeviceOptimizers, ThroughTheHost) { run(Reach::Host); }

INSTANTIATE_TEST_SUITE_P(All, DeviceOptimizers,
                         ::testing::Range(std::size_t{0}, trainings().size()));

/// The host's waits in a backward pass and a step of a gradient all-reduce.
TEST(DeviceGradientAllreduce, WaitsForTheDeviceWhereItLacksAGradient) {
  on_device_ranks({.at_least = 2, .at_most = 3}, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const TorchDevice torch_device(rank.shared_cuda(), own, rank.stream);
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(own));
    Net net(0);
    net.to(device);
    torch::optim::SGD sgd(net.parameters(), 0.05);
    DistributedOptimizer optimizer(
        rank.context.shared_from_this(), sgd, net,
        {.algorithm = AlgorithmName::GradientAllreduce, .bucket_bytes = 0});
    const at::Tensor x = numbers({4, 6}, own).to(device);
    const auto waits_of_step = [&](bool has_second) {
      const int before = torch_device.host_waits();
      optimizer.zero_grad();
      net.loss(x, has_second).backward();
      optimizer.step();
      return torch_device.host_waits() - before;
    };
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(waits_of_step(true), 0) << step;
    }
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(waits_of_step(own != 0), own == 0 ? 1 : 0) << step;
    }
    EXPECT_EQ(waits_of_step(true), 0);
  });
}

TEST(DeviceOptimizerErrors, ModelsElsewhere) {
  on_device_ranks({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const int other = 1 - own;  // the other rank's
    const TorchDevice torch_device(rank.shared_cuda(), other, [&] {
      const gpu::DeviceScope scope(rank.cuda, other);
      return rank.cuda.make_stream();
    }());
    Net net(0);
    const auto wrap = [&] {
      torch::optim::SGD sgd(net.parameters(), 0.05);
      DistributedOptimizer(rank.context.shared_from_this(), sgd, net, {});
    };
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(other));
    net.second->to(device);
    EXPECT_THAT(error_of<InvalidArgument>(wrap),
                HasSubstr("expected all parameters on one device"));
    net.first->to(device);
    EXPECT_THAT(
        error_of<InvalidArgument>(wrap),
        HasSubstr(fmt::format("the device of the context (Context::use_device), CUDA device "
                              "{}, found float32[5, 6] on cuda:{}",
                              own, other)));
  });
}

TEST(DeviceConsensus, IsThatOfTheCpu) {
  on_device_ranks({.at_most = 3}, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const TorchDevice torch_device(rank.shared_cuda(), own, rank.stream);
    Net net(17 * own);
    const double expected = optimizers::consensus_distance(rank.context, net);
    net.to(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(own)));
    EXPECT_EQ(optimizers::consensus_distance(rank.context, net), expected);
    EXPECT_EQ(expected > 0.0, rank.context.size() > 1);
  });
}

}  // namespace
}  // namespace bluefog::testing
