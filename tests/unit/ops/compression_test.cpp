#include "ops/compression.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/ops/sums.hpp"

namespace bluefog::testing {
namespace {

using ops::Compression;
using ops::compression_named;
using ::testing::HasSubstr;

constexpr std::size_t kBlock = 256;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::size_t> counts() {
  return {0, 1, 2, 3, 7, 8, 9, 127, 128, 129, 255, 256, 257, 511, 512, 4095, 4096, 4097, 9000};
}

std::vector<float> random_values(std::size_t count, unsigned seed, double largest = 3.0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, largest / 3);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(normal(random)); });
  return values;
}

std::vector<std::byte> code_of(const Compression& compression, const std::vector<float>& values) {
  std::vector<std::byte> code(compression.bytes_of(values.size()), std::byte{0xa5});
  compression.encode(values, code);
  return code;
}

std::vector<float> coded(const Compression& compression, const std::vector<float>& values) {
  // Memory behind the values is nobody's.
  std::vector<float> result(values.size() + 16, 7.0F);
  compression.decode(code_of(compression, values), std::span(result).first(values.size()));
  EXPECT_TRUE(std::all_of(result.begin() + static_cast<std::ptrdiff_t>(values.size()), result.end(),
                          [](float value) { return value == 7.0F; }));
  result.resize(values.size());
  return result;
}

double squares(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [](double sum, double value) { return sum + value * value; });
}

double squared_error(const std::vector<float>& values, const std::vector<float>& others) {
  double sum = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const double error = static_cast<double>(values[k]) - others[k];
    sum += error * error;
  }
  return sum;
}

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

/// A block's result by the definition.
using Definition = std::function<std::vector<float>(std::span<const float> block)>;

std::vector<float> by_levels(std::span<const float> block, float levels) {
  const float largest = largest_of(block);
  std::vector<float> result;
  for (const float value : block) {
    const float multiple = std::nearbyint(value * (levels / largest));
    result.push_back(largest == 0 ? 0 : multiple / levels * largest);
  }
  return result;
}

std::vector<float> by_signs(std::span<const float> block) {
  double sum = 0;
  for (const float value : block) {
    sum += std::abs(static_cast<double>(value));
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(block.size()));
  std::vector<float> result;
  for (const float value : block) {
    result.push_back(value < 0 ? -mean : mean);
  }
  return result;
}

std::vector<float> as_halves(std::span<const float> block, Dtype dtype, int exponent) {
  Values halves(dtype, block.size());
  std::vector<float> result;
  for (std::size_t k = 0; k < block.size(); ++k) {
    const double scaled = std::ldexp(static_cast<double>(block[k]), -exponent);
    halves.set(k, dtype == Dtype::Float16 ? std::clamp(scaled, -32752.0, 32752.0) : scaled);
    result.push_back(static_cast<float>(std::ldexp(halves[k], exponent)));
  }
  return result;
}

std::vector<float> by_float16(std::span<const float> block) {
  const float largest = largest_of(block);
  return as_halves(block, Dtype::Float16, largest > 0 ? std::ilogb(largest) - 14 : 0);
}

std::vector<float> by_blocks(const std::vector<float>& values, const Definition& definition) {
  std::vector<float> result;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block =
        definition(std::span(values).subspan(begin, std::min(kBlock, values.size() - begin)));
    result.insert(result.end(), block.begin(), block.end());
  }
  return result;
}

void expect_definition(std::string_view name, const Definition& definition) {
  on_every_target([&] {
    for (const std::size_t count : counts()) {
      const auto values = random_values(count, static_cast<unsigned>(count));
      EXPECT_EQ(coded(*compression_named(name), values), by_blocks(values, definition))
          << name << " of " << count;
    }
  });
}

TEST(Compression, Int8IsItsDefinition) {
  expect_definition("int8", [](auto block) { return by_levels(block, 127); });
}

TEST(Compression, Int4IsItsDefinition) {
  expect_definition("int4", [](auto block) { return by_levels(block, 7); });
}

TEST(Compression, SignIsItsDefinition) { expect_definition("sign", by_signs); }

TEST(Compression, Float16IsItsDefinition) { expect_definition("float16", by_float16); }

TEST(Compression, BFloat16IsItsDefinition) {
  expect_definition("bfloat16", [](auto block) { return as_halves(block, Dtype::BFloat16, 0); });
}

TEST(Compression, TopKKeepsTheLargestOfEachChunk) {
  const auto top_k = compression_named("topk:3");
  auto values = random_values(4096 + 2000, 5);
  values[10] = values[20] = values[30] = values[4000] = -100.0F;
  values[4096 + 1999] = 50.0F;
  const auto result = coded(*top_k, values);
  std::vector<std::size_t> kept;
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (result[k] != 0) {
      EXPECT_EQ(result[k], values[k]);
      kept.push_back(k);
    }
  }
  // Of four equal ones the first three, and two of the rest, which is half a chunk.
  ASSERT_EQ(kept.size(), 5U);
  EXPECT_EQ((std::vector(kept.begin(), kept.begin() + 3)), (std::vector<std::size_t>{10, 20, 30}));
  EXPECT_EQ(kept.back(), 4096U + 1999U);
  EXPECT_EQ(top_k->bytes_of(4096 + 2000), 5U * 6U);
}

TEST(Compression, TopK8IsTopKInInt8) {
  const auto values = random_values(3 * 4096 + 100, 5);
  const auto kept_by = [&](std::string_view name) {
    std::vector<float> kept = coded(*compression_named(name), values);
    std::erase(kept, 0.0F);
    return kept;
  };
  EXPECT_EQ(kept_by("topk8:100"), coded(*compression_named("int8"), kept_by("topk:100")));
}

/// All names, and a share of its own.
std::vector<std::string> names() {
  std::vector<std::string> all = ops::compression_names();
  all.insert(all.end(), {"topk:1", "topk:4096"});
  return all;
}

TEST(Compression, ContractsByWhatItStates) {
  for (const std::string& name : names()) {
    const auto compression = compression_named(name);
    for (const std::size_t count : counts()) {
      if (count == 0) {
        continue;
      }
      const double delta = compression->contraction(count);
      EXPECT_GT(delta, 0) << name;
      EXPECT_LE(delta, 1) << name;
      std::vector<std::vector<float>> inputs{random_values(count, 3), random_values(count, 4, 1e30),
                                             random_values(count, 6, 1e-25),
                                             std::vector<float>(count, 0.25F)};
      // The worst of rounding: all but one lie in the middle between two multiples.
      for (const float levels : {7.0F, 127.0F}) {
        inputs.emplace_back(count, 0.4999999F / levels)[count / 2] = 1.0F;
      }
      // The worst of signs.
      inputs.emplace_back(count, 0.0F)[count / 2] = -3.0F;
      // The largest ones.
      inputs.emplace_back(count, std::numeric_limits<float>::max() / 1e4F)[0] *= 0.99F;
      for (const auto& values : inputs) {
        EXPECT_LE(squared_error(values, coded(*compression, values)), (1 - delta) * squares(values))
            << name << " of " << count << ", " << values[0];
      }
    }
  }
}

TEST(Compression, StatedContractionsAreThoseOfTheDocs) {
  EXPECT_NEAR(compression_named("int8")->contraction(10'000), 0.996, 1e-3);
  EXPECT_NEAR(compression_named("int4")->contraction(10'000), 0.43, 1e-2);
  EXPECT_NEAR(compression_named("sign")->contraction(10'000), 1.0 / 256, 1e-5);
  EXPECT_EQ(compression_named("topk")->contraction(10'000), 64.0 / 4096);
}

TEST(Compression, BytesAreThoseOfTheDocs) {
  const auto bits = [](std::string_view name) {
    return 8.0 * static_cast<double>(compression_named(name)->bytes_of(8192)) / 8192;
  };
  EXPECT_EQ(bits("bfloat16"), 16);
  EXPECT_EQ(bits("float16"), 16 + 1.0 / 16);
  EXPECT_EQ(bits("int8"), 8 + 1.0 / 8);
  EXPECT_EQ(bits("int4"), 4 + 1.0 / 8);
  EXPECT_EQ(bits("sign"), 1 + 1.0 / 8);
  EXPECT_EQ(bits("topk:16"), 48.0 * 16 / 4096);
  EXPECT_EQ(bits("topk8:128"), (24 + 1.0 / 8) * 128 / 4096);
  // Counts that no memory holds.
  EXPECT_EQ(compression_named("int8")->bytes_of(std::size_t{1} << 31U), 2'181'038'080U);
}

TEST(Compression, NothingIsNothing) {
  for (const std::string& name : names()) {
    for (const std::size_t count : counts()) {
      const std::vector<float> zeros(count, 0.0F);
      EXPECT_EQ(coded(*compression_named(name), zeros), zeros) << name;
    }
  }
}

TEST(Compression, WhatIsNotFiniteStaysSo) {
  on_every_target([] {
    for (const std::string& name : names()) {
      for (const float wrong : {kNan, -kNan, kInfinity, -kInfinity}) {
        for (const std::size_t count : {1U, 100U, 256U, 1000U}) {
          auto values = random_values(count, 9);
          values[count / 2] = wrong;
          const auto result = coded(*compression_named(name), values);
          EXPECT_FALSE(std::isfinite(result[count / 2])) << name << " of " << count;
          // Other blocks are what they are.
          if (count == 1000) {
            EXPECT_TRUE(std::isfinite(result.front())) << name;
          }
        }
      }
    }
  });
}

TEST(Compression, NothingThatIsNotFiniteIsLeftOut) {
  for (const std::string& name : names()) {
    for (const float wrong : {kNan, kInfinity, -kInfinity}) {
      for (const std::size_t count : {100U, 256U, 5000U}) {
        auto values = random_values(count, 9);
        for (std::size_t k = 0; k < count; k += 3) {
          values[k] = wrong;
        }
        const auto result = coded(*compression_named(name), values);
        for (std::size_t k = 0; k < count; k += 3) {
          ASSERT_FALSE(std::isfinite(result[k])) << name << " of " << count << " at " << k;
        }
        // Others are what they were, or no numbers either.
        for (std::size_t k = 1; k < count; k += 3) {
          ASSERT_TRUE(!std::isfinite(result[k]) || std::abs(result[k] - values[k]) < 0.1F ||
                      result[k] == 0.0F)
              << name << " of " << count << " at " << k;
        }
      }
    }
  }
}

TEST(Compression, FiniteOnesStayFinite) {
  const float most = std::numeric_limits<float>::max();
  for (const std::string& name : names()) {
    for (const float value : {most, -most, std::nextafter(most, 0.0F)}) {
      auto values = random_values(300, 11);
      values[5] = value;
      const auto result = coded(*compression_named(name), values);
      EXPECT_TRUE(std::ranges::all_of(result, [](float x) { return std::isfinite(x); })) << name;
    }
  }
}

TEST(Compression, SubnormalNumbersAreNumbers) {
  on_every_target([] {
    for (const char* const name : {"float16", "int8", "int4", "topk:4096"}) {
      std::vector<float> values(256);
      for (std::size_t k = 0; k < values.size(); ++k) {
        values[k] = std::bit_cast<float>(static_cast<std::uint32_t>(1000 * k));
      }
      const auto result = coded(*compression_named(name), values);
      EXPECT_LE(squared_error(values, result), 0.01 * squares(values)) << name;
      EXPECT_EQ(coded(*compression_named(name), {std::numeric_limits<float>::denorm_min()}),
                std::vector{std::numeric_limits<float>::denorm_min()})
          << name;
    }
  });
}

TEST(Compression, EveryInstructionSetGivesTheSameBytes) {
  for (const std::string& name : names()) {
    const auto compression = compression_named(name);
    auto values = random_values(5000, 21);
    values[3] = 1e-42F;
    std::vector<std::vector<std::byte>> codes;
    std::vector<std::vector<float>> results;
    on_every_target([&] {
      codes.push_back(code_of(*compression, values));
      results.push_back(coded(*compression, values));
    });
    for (std::size_t t = 1; t < codes.size(); ++t) {
      EXPECT_EQ(codes[t], codes[0]) << name;
      EXPECT_EQ(results[t], results[0]) << name;
    }
  }
}

TEST(Compression, BytesOfOthersWriteNothingOutside) {
  std::mt19937 random(1);
  for (const std::string& name : names()) {
    const auto compression = compression_named(name);
    for (const std::size_t count : counts()) {
      std::vector<std::byte> code(compression->bytes_of(count));
      std::ranges::generate(code, [&] { return static_cast<std::byte>(random()); });
      std::vector<float> values(count + 8, 7.0F);
      compression->decode(code, std::span(values).first(count));
      EXPECT_TRUE(std::all_of(values.begin() + static_cast<std::ptrdiff_t>(count), values.end(),
                              [](float value) { return value == 7.0F; }))
          << name;
    }
  }
}

/// x̂ += C(x − x̂), again and again.
TEST(Compression, CodedDifferencesReachTheValue) {
  for (const std::string& name : names()) {
    const auto compression = compression_named(name);
    const auto values = random_values(3000, 2);
    std::vector<float> copy(values.size(), 0.0F);
    for (int round = 0; round < 3000; ++round) {
      std::vector<float> difference(values.size());
      for (std::size_t k = 0; k < values.size(); ++k) {
        difference[k] = values[k] - copy[k];
      }
      const auto step = coded(*compression, difference);
      for (std::size_t k = 0; k < values.size(); ++k) {
        copy[k] += step[k];
      }
    }
    EXPECT_LE(std::sqrt(squared_error(values, copy) / squares(values)), 1e-5) << name;
  }
}

TEST(Compression, NamesThatAreNoneAreRefused) {
  EXPECT_THAT(error_of<InvalidArgument>([] { (void)compression_named("int3"); }),
              HasSubstr("compression: expected one of bfloat16, float16, int8, int4, sign, topk, "
                        "topk8, or topk:K or topk8:K, found 'int3'"));
  for (const char* const name :
       {"topk:", "topk:0", "topk:4097", "topk:3x", "topk:-1", "topk8:", "topk8:0"}) {
    EXPECT_THAT(error_of<InvalidArgument>([&] { (void)compression_named(name); }),
                HasSubstr("K from 1 to 4096"));
  }
  EXPECT_THAT(error_of<InvalidArgument>([] { (void)compression_named(""); }),
              HasSubstr("found ''"));
  EXPECT_EQ(compression_named("topk")->name(), "topk:64");
  EXPECT_EQ(compression_named("topk8")->name(), "topk8:64");
}

}  // namespace
}  // namespace bluefog::testing
