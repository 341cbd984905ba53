#include "optimizers/algorithms/consensus/distance_sketch.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>

#include "ops/allreduce.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {
namespace {

constexpr std::int64_t kNumbers = 256;
constexpr std::uint64_t kSeed = 0x5ce7c4;

/// −1 or 1 for each element, of the kind and device that sums are formed with.
at::Tensor random_signs(const Bucket& bucket) {
  at::Generator generator =
      at::detail::createCPUGenerator(kSeed + static_cast<std::uint64_t>(bucket.index()));
  const at::Tensor bits =
      at::randint(0, 2, {bucket.flat().numel()}, generator, at::TensorOptions(at::kChar));
  return bits.mul_(2).sub_(1).to(bucket.flat().device());
}

}  // namespace

DistanceSketch::DistanceSketch(Context& context, const std::vector<Bucket>& buckets)
    : context_(context), buckets_(buckets) {
  std::int64_t count = 0;
  for (const Bucket& bucket : buckets) {
    signs_.push_back(random_signs(bucket));
    firsts_.push_back(count % kNumbers);
    count += bucket.flat().numel();
  }
}

at::Tensor DistanceSketch::of(std::size_t b) const {
  const at::Tensor signed_values = buckets_[b].flat().to(at::kDouble).mul(signs_[b]);
  const std::int64_t count = signed_values.numel();
  const std::int64_t rows = count / kNumbers;
  at::Tensor sums =
      signed_values.narrow(0, 0, rows * kNumbers).view({rows, kNumbers}).sum(/*dim=*/0);
  const std::int64_t rest = count - rows * kNumbers;
  sums.narrow(0, 0, rest).add_(signed_values.narrow(0, rows * kNumbers, rest));
  return sums.roll(firsts_[b]).cpu();
}

DistanceSketch::Found DistanceSketch::distance(double own, std::size_t& issued) const {
  std::vector<at::Tensor> sketches;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    sketches.push_back(of(b));
  }
  const at::Tensor mine = at::stack(sketches).sum(/*dim=*/0);
  const at::Tensor mean = mine.clone();
  ++issued;
  ops::allreduce(context_, view_of(mean), {.name = "sketch of the parameters"});
  const double square = (mine - mean).square().sum().item<double>();
  const at::Tensor squares = at::tensor({square, own}, at::kDouble);
  ++issued;
  ops::allreduce(context_, view_of(squares), {.name = "consensus distance"});
  return {.distance = std::sqrt(squares[0].item<double>()), .mean = squares[1].item<double>()};
}

}  // namespace bluefog::optimizers
