// The arithmetic of the sum kernels, compiled for the host and run as their threads would: it has
// to give the bits of the CPU's sums.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/sums/average.hpp"
#include "ops/sums/combine.hpp"
#include "ops/sums/cuda/sum_kernels.hpp"
#include "ops/sums/plain_sum.hpp"
#include "tests/support/device_sums.hpp"
#include "tests/unit/ops/sums.hpp"

namespace bluefog::testing {
namespace {

using ops::cuda::SumArguments;
using ops::cuda::SumForm;
using ops::cuda::SumRule;

/// Memory for `count` elements that begins `shift` elements behind a multiple of 16 bytes, with an
/// element on either side that must stay as it is.
class Placed {
 public:
  Placed(const Values& values, std::size_t shift)
      : size_(values.count() * size_of(values.dtype())),
        memory_(size_ + 64, std::byte{0x5a}),
        begin_(16 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 16 + 16 +
               shift * size_of(values.dtype())) {
    std::memcpy(data(), const_cast<Values&>(values).bytes().data(), size_);
  }
  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] Values values(Dtype dtype) {
    Values result(dtype, size_ / size_of(dtype));
    std::memcpy(result.bytes().data(), data(), size_);
    return result;
  }
  [[nodiscard]] bool is_intact_around() const {
    return memory_[begin_ - 1] == std::byte{0x5a} && memory_[begin_ + size_] == std::byte{0x5a};
  }

 private:
  std::size_t size_;
  std::vector<std::byte> memory_;
  std::size_t begin_;
};

/// Hard values, or whole numbers with all bits for integers.
Values any_values(Dtype dtype, std::size_t count, unsigned seed) {
  if (is_floating(dtype)) {
    return hard_values(dtype, count, seed);
  }
  Values values(dtype, count);
  for (std::size_t k = 0; k < values.bytes().size(); ++k) {
    values.bytes()[k] = static_cast<std::byte>((k * 97 + seed * 31) % 251);
  }
  return values;
}

struct Case {
  SumForm form;
  Dtype dtype;
  std::size_t number;
  std::size_t count;
  /// Elements by which the out and the operands are shifted from a multiple of 16 bytes.
  std::size_t out_shift = 0;
  std::size_t operand_shift = 0;
  /// Index of the operand that is also the out, or −1.
  int in_place = -1;
};

const std::vector<double> kWeights{0.25, 1.0, -0.5, 1.0 / 3, 0.1, 2.0, 0.7, -1.0, 0.0, 1.25};

[[nodiscard]] SumRule rule_of(SumForm form) {
  return form == SumForm::Products || form == SumForm::Average ? SumRule::Weighted : SumRule::Plain;
}

/// Weights that sum to 1 where the form is an average; the base is then the second of them.
std::vector<double> weights_of(const Case& c) {
  std::vector<double> weights(kWeights.begin(),
                              kWeights.begin() + static_cast<std::ptrdiff_t>(c.number));
  if (c.form == SumForm::Average) {
    const double others = std::accumulate(weights.begin(), weights.end(), 0.0) -
                          (c.number > 1 ? weights[1] : weights[0]);
    weights[c.number > 1 ? 1 : 0] = 1.0 - others;
  }
  return weights;
}

void expect_bits_of_the_cpu(const Case& c) {
  const std::vector<double> weights = weights_of(c);
  std::vector<Placed> operands;
  std::vector<ops::Operand> weighted;
  std::vector<const std::byte*> plain;
  for (std::size_t s = 0; s < c.number; ++s) {
    const Values values = any_values(c.dtype, c.count, static_cast<unsigned>(100 * c.number + s));
    operands.emplace_back(values,
                          c.in_place == static_cast<int>(s) ? c.out_shift : c.operand_shift);
  }
  for (std::size_t s = 0; s < c.number; ++s) {
    weighted.push_back({.data = operands[s].data(), .weight = weights[s]});
    plain.push_back(operands[s].data());
  }
  Values expected(c.dtype, c.count);
  if (rule_of(c.form) == SumRule::Weighted) {
    ops::weighted_sum(c.dtype, expected.bytes().data(), weighted, expected.bytes().size());
  } else if (c.form == SumForm::Mean) {
    ops::mean(c.dtype, expected.bytes().data(), plain, expected.bytes().size());
  } else {
    ops::plain_sum(c.dtype, expected.bytes().data(), plain, expected.bytes().size());
  }

  Placed other(Values(c.dtype, c.count), c.out_shift);
  Placed& out = c.in_place < 0 ? other : operands[static_cast<std::size_t>(c.in_place)];
  SumArguments arguments{};
  arguments.out = out.data();
  arguments.count = static_cast<std::int64_t>(c.count);
  arguments.form = c.form;
  arguments.operand_count = static_cast<int>(c.number);
  for (std::size_t s = 0; s < c.number; ++s) {
    const std::size_t place =
        c.form == SumForm::Average ? ops::from_base(*ops::base_of(weighted), s) : s;
    arguments.operands[s] = {.data = operands[place].data(), .weight = weights[place]};
  }
  run_sum_kernel(ops::cuda::sum_kernel_name(rule_of(c.form), c.dtype), arguments, 37);
  ASSERT_TRUE(same_numbers(out.values(c.dtype), expected))
      << name_of(c.dtype) << ", " << c.number << " operands of " << c.count << ", shifts "
      << c.out_shift << " and " << c.operand_shift;
  ASSERT_TRUE(out.is_intact_around());
}

TEST(DeviceSum, WeightedSumsOfZeroToNineSources) {
  for (const Dtype dtype : kFloatingDtypes) {
    for (std::size_t number = 1; number <= 10; ++number) {
      for (const std::size_t count : odd_counts()) {
        expect_bits_of_the_cpu({SumForm::Products, dtype, number, count});
        expect_bits_of_the_cpu({SumForm::Average, dtype, number, count});
      }
    }
  }
}

TEST(DeviceSum, HeadsAndTailsBesidePacks) {
  for (const Dtype dtype : kFloatingDtypes) {
    const std::size_t lanes = 16 / size_of(dtype);
    for (std::size_t out_shift = 0; out_shift < lanes; ++out_shift) {
      for (const std::size_t operand_shift : {out_shift, (out_shift + 1) % lanes}) {
        for (const std::size_t count :
             {std::size_t{1}, lanes - 1, lanes, lanes + 1, 3 * lanes + 5}) {
          expect_bits_of_the_cpu({SumForm::Products, dtype, 3, count, out_shift, operand_shift});
          expect_bits_of_the_cpu({SumForm::Average, dtype, 3, count, out_shift, operand_shift});
        }
      }
    }
  }
}

TEST(DeviceSum, IntoAnyOfItsOperands) {
  for (const Dtype dtype : kFloatingDtypes) {
    for (int own = 0; own < 4; ++own) {
      for (const SumForm form : {SumForm::Products, SumForm::Average, SumForm::Mean}) {
        expect_bits_of_the_cpu({form, dtype, 4, 1100, 1, 1, own});
      }
    }
  }
}

TEST(DeviceSum, PlainSumsOfEveryDtype) {
  for (const Dtype dtype : kAllDtypes) {
    if (dtype == Dtype::Bool) {
      continue;
    }
    for (std::size_t number = 1; number <= 9; ++number) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{17}, std::size_t{1100}}) {
        expect_bits_of_the_cpu({SumForm::Sum, dtype, number, count, 1, 1});
        if (is_floating(dtype)) {
          expect_bits_of_the_cpu({SumForm::Mean, dtype, number, count, 1, 1});
        }
      }
    }
  }
}

/// The result with weight 1 is the value read, and halves of all values show every tie there is.
TEST(DeviceSum, EveryHalf) {
  for (const Dtype dtype : {Dtype::Float16, Dtype::BFloat16}) {
    for (const double weight : {1.0, 0.5, 0.375, 1.0 / 3, 1024.0, 0x1p-20}) {
      Values in = all_halves(dtype);
      const ops::Operand operand{.data = in.bytes().data(), .weight = weight};
      Values expected(dtype, in.count());
      ops::weighted_sum(dtype, expected.bytes().data(), {&operand, 1}, in.bytes().size());
      Values out(dtype, in.count());
      SumArguments arguments{};
      arguments.out = out.bytes().data();
      arguments.count = static_cast<std::int64_t>(in.count());
      arguments.form = weight == 1.0 ? SumForm::Average : SumForm::Products;
      arguments.operand_count = 1;
      arguments.operands[0] = {.data = in.bytes().data(), .weight = weight};
      run_sum_kernel(ops::cuda::sum_kernel_name(SumRule::Weighted, dtype), arguments, 64);
      ASSERT_TRUE(same_numbers(out, expected)) << name_of(dtype) << " times " << weight;
    }
  }
}

TEST(DeviceSum, OtherDtypesHaveNoKernel) {
  EXPECT_THROW((void)ops::cuda::sum_kernel_name(SumRule::Weighted, Dtype::Int32), UnsupportedError);
  EXPECT_THROW((void)ops::cuda::sum_kernel_name(SumRule::Plain, Dtype::Bool), UnsupportedError);
}

/// Runs in builds with a toolkit. An architecture's code is an ELF file with a section per kernel.
TEST(DeviceSum, ImageHasCodeOfEachKernelForEachArchitecture) {
  using namespace std::literals;
  const auto image = ops::cuda::sum_kernels_image();
  if (image.empty()) {
    GTEST_SKIP() << "this build has no CUDA kernels";
  }
  const std::uint32_t kFatBinaryMagic = 0xba55ed50;
  std::uint32_t magic = 0;
  std::memcpy(&magic, image.data(), sizeof magic);
  EXPECT_EQ(magic, kFatBinaryMagic);
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  if (bytes.find("bluefog_") == std::string_view::npos) {
    GTEST_SKIP() << "this toolkit's image is compressed: its names cannot be read";
  }
  constexpr std::string_view kElf =
      "\x7f"
      "ELF";
  std::size_t begin = bytes.find(kElf);
  ASSERT_NE(begin, std::string_view::npos);
  while (begin != std::string_view::npos) {
    const std::size_t end = bytes.find(kElf, begin + 1);
    const std::string_view code = bytes.substr(begin, end - begin);
    for (const SumRule rule : {SumRule::Weighted, SumRule::Plain}) {
      for (const Dtype dtype : kAllDtypes) {
        if (dtype != Dtype::Bool && (rule == SumRule::Plain || is_floating(dtype))) {
          const std::string section = "\0.text."s + ops::cuda::sum_kernel_name(rule, dtype) + '\0';
          EXPECT_NE(code.find(section), code.npos)
              << section.substr(1) << " in the code at byte " << begin;
        }
      }
    }
    begin = end;
  }
}

}  // namespace
}  // namespace bluefog::testing
