#include "tests/unit/ops/sums.hpp"

#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

namespace bluefog::testing {
namespace {

/// The bits of element `k`, of a floating dtype.
std::uint64_t bits_of(const Values& values, std::size_t k) {
  const std::vector<std::byte>& bytes = const_cast<Values&>(values).bytes();
  const std::size_t size = size_of(values.dtype());
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + k * size, size);
  return bits;
}

void set_bits(Values& values, std::size_t k, std::uint64_t bits) {
  const std::size_t size = size_of(values.dtype());
  std::memcpy(values.bytes().data() + k * size, &bits, size);
}

}  // namespace

void on_every_target(const std::function<void()>& body) {
  struct Unmock {
    ~Unmock() { hwy::SetSupportedTargetsForTest(0); }
  };
  const Unmock unmock;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    // Dispatch tables look at the CPU's instruction sets only once.
    hwy::GetChosenTarget().Update(target);
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, hwy::TargetName(target));
    body();
    if (::testing::Test::HasFatalFailure()) {
      break;
    }
  }
  hwy::GetChosenTarget().DeInit();
}

Values hard_values(Dtype dtype, std::size_t count, unsigned seed) {
  const auto bits = static_cast<int>(8 * size_of(dtype));
  const int mantissa = dtype == Dtype::Float16    ? 10
                       : dtype == Dtype::BFloat16 ? 7
                       : dtype == Dtype::Float32  ? 23
                                                  : 52;
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  const std::uint64_t least_normal = std::uint64_t{1} << mantissa;
  const std::uint64_t infinity = sign - least_normal;
  Values one(dtype, std::vector<double>{1.0});
  const std::uint64_t one_bits = bits_of(one, 0);
  const std::vector<std::uint64_t> special{0,
                                           1,
                                           2,
                                           least_normal - 1,
                                           least_normal,
                                           least_normal + 1,
                                           infinity,
                                           infinity - 1,
                                           one_bits,
                                           one_bits + 1,
                                           one_bits - 1,
                                           infinity + 1,
                                           infinity + least_normal / 2};
  std::mt19937_64 random(seed);
  Values values(dtype, count);
  for (std::size_t k = 0; k < count; ++k) {
    const std::uint64_t any = random();
    switch (any % 4) {
      case 0:
        set_bits(values, k,
                 special[(any >> 8) % special.size()] | ((any >> 4) % 2 == 0 ? sign : 0));
        break;
      case 1:
        set_bits(values, k, random());  // any exponent
        break;
      default:  // near 1, where sums cancel and ties happen
        values.set(k, std::ldexp(static_cast<double>(random() % 4096) - 2048, -6));
        break;
    }
  }
  return values;
}

std::vector<Values> hard_operands(Dtype dtype, std::size_t number, std::size_t count) {
  std::vector<Values> operands;
  for (std::size_t s = 0; s < number; ++s) {
    operands.push_back(hard_values(dtype, count, static_cast<unsigned>(100 * number + s)));
  }
  return operands;
}

Values all_halves(Dtype dtype) {
  Values values(dtype, 65536);
  for (std::size_t k = 0; k < values.count(); ++k) {
    set_bits(values, k, k);
  }
  return values;
}

::testing::AssertionResult same_numbers(const Values& actual, const Values& expected) {
  if (actual.dtype() != expected.dtype() || actual.count() != expected.count()) {
    return ::testing::AssertionFailure() << "of other dtypes or counts";
  }
  for (std::size_t k = 0; k < actual.count(); ++k) {
    const bool both_nan =
        is_floating(actual.dtype()) && std::isnan(actual[k]) && std::isnan(expected[k]);
    if (!both_nan && bits_of(actual, k) != bits_of(expected, k)) {
      return ::testing::AssertionFailure()
             << "element " << k << " of " << actual.count() << ": " << actual[k] << " (bits "
             << std::hex << bits_of(actual, k) << "), expected " << expected[k] << " (bits "
             << bits_of(expected, k) << ")";
    }
  }
  return ::testing::AssertionSuccess();
}

std::vector<std::size_t> odd_counts() {
  return {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 511, 512, 513, 527, 1025, 1100};
}

}  // namespace bluefog::testing
