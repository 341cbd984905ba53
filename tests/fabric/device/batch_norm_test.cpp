// Batch normalisation over inputs on devices, over the stand-ins, gives the bits of that on the
// CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "bluefog_cpp/error.hpp"
#include "nn/sync_batch_norm.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "tests/support/gpu/torch_stand_in.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kChannels = 3;

at::Tensor input_of(int rank, at::IntArrayRef behind, at::ScalarType dtype) {
  std::vector<std::int64_t> sizes{rank == 2 ? 0 : rank + 2, kChannels};  // none on rank 2
  sizes.insert(sizes.end(), behind.begin(), behind.end());
  const std::int64_t count = c10::multiply_integers(sizes);
  return ((at::arange(count, at::kDouble) * 0.7 + rank).sin() * 2 + 3).reshape(sizes).to(dtype);
}

/// Output, gradients and running statistics of two steps, on the CPU.
std::vector<at::Tensor> stepped(Context& context, const at::Tensor& values,
                                const at::Device& device) {
  nn::SyncBatchNorm layer(context.shared_from_this(), torch::nn::BatchNormOptions(kChannels));
  {
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(at::arange(1, kChannels + 1) / 3.0);
    layer->bias.copy_(at::arange(kChannels) / 7.0);
  }
  layer->to(device);
  at::Tensor x = values.to(device).detach().requires_grad_();
  std::vector<at::Tensor> found;
  for (int step = 0; step < 2; ++step) {
    const at::Tensor y = layer->forward(x);
    (y * y * y).sum().backward();
    found.push_back(y.detach());
  }
  found.insert(found.end(), {x.grad(), layer->weight.grad(), layer->bias.grad(),
                             layer->running_mean, layer->running_var});
  for (at::Tensor& tensor : found) {
    tensor = tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  return found;
}

void expect_the_bits_of_the_cpu(Reach reach) {
  on_device_ranks({.at_most = 4, .reach = reach}, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const TorchDevice torch_device(rank.shared_cuda(), own, rank.stream);
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(own));
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (const std::vector<std::int64_t>& behind : {std::vector<std::int64_t>{}, {5}, {4, 3}}) {
        const at::Tensor input = input_of(own, behind, dtype);
        const auto expected = stepped(rank.context, input, at::kCPU);
        const auto found = stepped(rank.context, input, device);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_TRUE(found[i].equal(expected[i]))
              << c10::toString(dtype) << ", " << behind.size() << " dimensions more, result " << i
              << ": found " << found[i] << ", expected " << expected[i];
        }
      }
    }
  });
}

TEST(DeviceBatchNorm, BitsOfTheCpuByNccl) { expect_the_bits_of_the_cpu(Reach::Nccl); }
TEST(DeviceBatchNorm, BitsOfTheCpuByCopiesBetweenDevices) {
  expect_the_bits_of_the_cpu(Reach::PeerProcesses);
}
TEST(DeviceBatchNorm, BitsOfTheCpuThroughTheHost) { expect_the_bits_of_the_cpu(Reach::Host); }

TEST(DeviceBatchNorm, RefusesInputsElsewhere) {
  on_device_ranks({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const TorchDevice torch_device(rank.shared_cuda(), own, rank.stream);
    const auto copy = rank.context.duplicate();  // it has no device
    const at::Tensor input =
        input_of(own, {}, at::kFloat).to(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(own)));
    nn::SyncBatchNorm layer(copy, torch::nn::BatchNormOptions(kChannels));
    layer->to(input.device());
    EXPECT_THAT(error_of<InvalidArgument>([&] { (void)layer->forward(input); }),
                HasSubstr("the device of the context (Context::use_device), which has none, found "
                          "float32["));
    meet(rank.context);
  });
}

/// Some ranks have their inputs on the CPU.
TEST(DeviceBatchNorm, InputsThatLieApartAreAMismatch) {
  on_device_ranks({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const TorchDevice torch_device(rank.shared_cuda(), own, rank.stream);
    const at::Device device =
        own == 0 ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(own));
    EXPECT_THAT(
        error_of<Error>([&] { stepped(rank.context, input_of(own, {}, at::kFloat), device); }),
        HasSubstr("sync_batch_norm"));
    meet(rank.context);
  });
}

}  // namespace
}  // namespace bluefog::testing
