// The copies on the host by which torch.distributed's backend takes tensors on devices, over the
// stand-ins.
#include "python/c10d/host_copies.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "tests/support/gpu/device_ranks.hpp"
#include "tests/support/gpu/torch_stand_in.hpp"

namespace bluefog::testing {
namespace {

using c10d_backend::HostCopies;

at::Tensor values_on_host(const at::Tensor& tensor) {
  return tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

TEST(HostCopies, AreLaidOutAsTheirTensorsAndComeBackOnce) {
  on_device_ranks({.at_most = 2}, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const TorchDevice torch_device(rank.shared_cuda(), own, rank.stream);
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(own));
    const at::Tensor values = at::arange(12, at::kFloat).reshape({3, 4}) + own;
    const at::Tensor result = values.to(device).t();
    const at::Tensor input = values.to(device);
    HostCopies copies;
    EXPECT_TRUE(copies.empty());
    const at::Tensor copy = copies.of(result, at::MemoryFormat::Preserve);
    EXPECT_TRUE(copy.is_cpu());
    EXPECT_EQ(copy.strides(), result.strides());
    EXPECT_TRUE(copy.equal(values.t()));
    EXPECT_TRUE(copies.of(result, at::MemoryFormat::Preserve).is_same(copy));
    const at::Tensor other = copies.of(input, at::MemoryFormat::Preserve);
    EXPECT_FALSE(other.is_same(copy));
    EXPECT_FALSE(copies.empty());
    copy.mul_(2);
    other.mul_(3);
    copies.bring_back({result});
    EXPECT_TRUE(copies.empty());
    EXPECT_TRUE(values_on_host(result).equal(values.t() * 2));
    EXPECT_TRUE(values_on_host(input).equal(values));
    copy.mul_(5);
    copies.bring_back({result});
    EXPECT_TRUE(values_on_host(result).equal(values.t() * 2));
  });
}

}  // namespace
}  // namespace bluefog::testing
