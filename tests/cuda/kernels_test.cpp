// The sum kernels on a GPU: the bits of the CPU.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "ops/sums/average.hpp"
#include "ops/sums/combine.hpp"
#include "ops/sums/cuda/sum_kernels.hpp"
#include "ops/sums/cuda/sum_loop.hpp"
#include "ops/sums/plain_sum.hpp"
#include "tests/cuda/gpu.hpp"

namespace bluefog::testing {
namespace {

using ops::cuda::SumArguments;
using ops::cuda::SumForm;
using ops::cuda::SumRule;

class Kernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) {
      GTEST_SKIP() << why_no_gpu();
    }
    if (ops::cuda::sum_kernels_image().empty()) {
      GTEST_SKIP() << "this build has no kernels";
    }
    gpu_ = std::make_unique<Gpu>(0);
  }

  /// Values that round, and a few special ones.
  static Values operand(Dtype dtype, std::size_t count, int number) {
    if (!is_floating(dtype)) {
      return small_integers(dtype, count, number);
    }
    Values values(dtype, count);
    for (std::size_t k = 0; k < count; ++k) {
      const auto step = static_cast<double>((k * 31 + static_cast<std::size_t>(number) * 17) % 997);
      values.set(k, (step - 498) / 7);
    }
    return values;
  }

  void expect_bits(SumForm form, Dtype dtype, std::size_t count, int operands, std::size_t shift) {
    const SumRule rule =
        form == SumForm::Products || form == SumForm::Average ? SumRule::Weighted : SumRule::Plain;
    std::vector<Values> inputs;
    SumArguments arguments{};
    std::vector<ops::Operand> weighted;
    std::vector<const std::byte*> plain;
    arguments.count = static_cast<std::int64_t>(count);
    arguments.operand_count = operands;
    arguments.form = form;
    for (int s = 0; s < operands; ++s) {
      inputs.push_back(operand(dtype, count, s));
      arguments.operands[s] = {.data = gpu_->upload(inputs.back(), shift).data,
                               .weight = form == SumForm::Products  ? 0.1 + s
                                         : form == SumForm::Average ? 1.0 / operands
                                                                    : 1.0};
    }
    for (int s = 0; s < operands; ++s) {
      const std::byte* const data = inputs[static_cast<std::size_t>(s)].bytes().data();
      weighted.push_back({.data = data, .weight = arguments.operands[s].weight});
      plain.push_back(data);
    }
    Values expected(dtype, count);
    const std::size_t bytes = expected.bytes().size();
    if (rule == SumRule::Weighted) {
      ops::weighted_sum(dtype, expected.bytes().data(), weighted, bytes);
    } else if (form == SumForm::Mean) {
      ops::mean(dtype, expected.bytes().data(), plain, bytes);
    } else {
      ops::plain_sum(dtype, expected.bytes().data(), plain, bytes);
    }
    const BufferView out = gpu_->upload(Values(dtype, count), shift);
    arguments.out = out.data;
    gpu::CudaApi& cuda = gpu_->cuda();
    cuda.launch(cuda.load(ops::cuda::sum_kernels_image(), ops::cuda::sum_kernel_name(rule, dtype)),
                {.blocks = 64, .threads = 256}, std::as_bytes(std::span(&arguments, 1)),
                gpu_->stream());
    ASSERT_EQ(gpu_->download(out), expected)
        << name_of(dtype) << "[" << count << "] of " << operands << ", shifted by " << shift;
  }

  std::unique_ptr<Gpu> gpu_;
};

TEST_F(Kernels, WeightedSums) {
  for (const Dtype dtype : kFloatingDtypes) {
    for (const SumForm form : {SumForm::Products, SumForm::Average}) {
      for (const std::size_t count : {1, 1003, 300'007}) {
        for (const int operands : {1, 2, 3, 8}) {
          expect_bits(form, dtype, count, operands, 0);
        }
      }
      expect_bits(form, dtype, 1003, ops::cuda::kMostSumOperands, 0);
      expect_bits(form, dtype, 1003, 3, 8);
    }
  }
}

TEST_F(Kernels, PlainSums) {
  for (const Dtype dtype : kAllDtypes) {
    if (dtype == Dtype::Bool) {
      continue;
    }
    for (const SumForm form : {SumForm::Sum, SumForm::Mean}) {
      if (form == SumForm::Mean && !is_floating(dtype)) {
        continue;
      }
      for (const std::size_t count : {1, 1003, 300'007}) {
        expect_bits(form, dtype, count, 3, 0);
      }
      expect_bits(form, dtype, 1003, 4, 8);
    }
  }
}

}  // namespace
}  // namespace bluefog::testing
