// Rows of bytes by sample, which the ranks of a host share.
#include "pipeline/runtime/activation_cache.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "pipeline/pipeline.hpp"
#include "tests/bodies/pipeline/support.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using pipeline::ActivationCache;
using pipeline::CacheOptions;
using ::testing::HasSubstr;

constexpr std::int64_t kCachedSamples = 40;
constexpr std::size_t kRowBytes = 200;

using Row = std::array<std::byte, kRowBytes>;

Row row_of(std::int64_t sample) {
  Row row{};
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<std::byte>(sample * 7 + static_cast<std::int64_t>(i) * 3);
  }
  return row;
}

std::string folder() { return std::filesystem::temp_directory_path().string(); }

/// Memory for half of the samples, and a file for a quarter: rows take 256 bytes.
CacheOptions half_in_memory() {
  return {.samples = kCachedSamples,
          .memory_bytes = kCachedSamples / 2 * 256,
          .disk_bytes = kCachedSamples / 4 * 256,
          .folder = folder()};
}

TEST(ActivationCache, EveryRankOfAHostFindsTheVeryBytes) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    ActivationCache cache(context, half_in_memory());
    cache.begin_generation(kRowBytes);
    const auto size = static_cast<std::int64_t>(context.size());
    for (std::int64_t sample = context.rank(); sample < kCachedSamples; sample += size) {
      cache.store(sample, 11, row_of(sample));
    }
    ops::barrier(context);
    std::int64_t found = 0;
    for (std::int64_t sample = 0; sample < kCachedSamples; ++sample) {
      Row row{};
      if (cache.find(sample, 11, row)) {
        EXPECT_EQ(row, row_of(sample)) << sample;
        ++found;
      }
    }
    // Shares of the memory are whole rows.
    EXPECT_LE(found, kCachedSamples * 3 / 4);
    EXPECT_GE(found, kCachedSamples * 3 / 4 - size);
    ops::barrier(context);  // who leaves takes its rows along
  });
}

TEST(ActivationCache, NothingStaleIsFound) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    ActivationCache cache(context, half_in_memory());
    Row row{};
    EXPECT_FALSE(cache.find(0, 1, row));
    cache.begin_generation();
    cache.store(0, 1, row_of(0));  // rows of no size have no place
    EXPECT_FALSE(cache.find(0, 1, row));
    ops::barrier(context);
    cache.begin_generation(kRowBytes);
    EXPECT_FALSE(cache.find(0, 1, row));
    ops::barrier(context);
    if (context.rank() == 0) {
      cache.store(0, 1, row_of(0));
      cache.store(0, 2, row_of(5));  // stays what it is
    }
    ops::barrier(context);
    EXPECT_TRUE(cache.find(0, 1, row));
    EXPECT_EQ(row, row_of(0));
    EXPECT_FALSE(cache.find(0, 2, row));
    ops::barrier(context);
    cache.begin_generation(kRowBytes);
    EXPECT_FALSE(cache.find(0, 1, row));
    ops::barrier(context);
  });
}

TEST(ActivationCache, RowsOfAnEarlierGenerationAreThereUntilTheirPlaceIsUsed) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    ActivationCache cache(context, half_in_memory());
    cache.begin_generation(kRowBytes);
    const std::int64_t in_file = kCachedSamples * 5 / 8;
    ops::barrier(context);
    if (context.rank() == 0) {
      for (const std::int64_t sample : {std::int64_t{0}, std::int64_t{1}, in_file}) {
        cache.store(sample, 1, row_of(sample));
      }
    }
    ops::barrier(context);
    Row row{};
    EXPECT_FALSE(cache.find_older(0, 1, row)) << "it is of this generation";
    ops::barrier(context);
    cache.begin_generation();
    EXPECT_FALSE(cache.find_older(0, 1, row)) << "rows of no size have no place";
    cache.set_row_bytes(kRowBytes);
    for (const std::int64_t sample : {std::int64_t{0}, std::int64_t{1}, in_file}) {
      EXPECT_TRUE(cache.find_older(sample, 1, row)) << sample;
      EXPECT_EQ(row, row_of(sample));
    }
    EXPECT_FALSE(cache.find_older(0, 2, row)) << "another stamp";
    EXPECT_FALSE(cache.find_older(2, 1, row)) << "never stored";
    EXPECT_FALSE(cache.find(0, 1, row));
    ops::barrier(context);
    if (context.rank() == 0) {
      cache.store(0, 2, row_of(5));
    }
    ops::barrier(context);
    EXPECT_FALSE(cache.find_older(0, 1, row));
    EXPECT_TRUE(cache.find(0, 2, row));
    EXPECT_EQ(row, row_of(5));
    ops::barrier(context);
    cache.begin_generation(kRowBytes);
    EXPECT_TRUE(cache.find_older(1, 1, row)) << "two generations ago";
    EXPECT_EQ(row, row_of(1));
    // Rows of another size lie elsewhere: what is found there is none of these.
    cache.set_row_bytes(kRowBytes / 2);
    EXPECT_FALSE(cache.find_older(1, 1, std::span(row).first(kRowBytes / 2)));
    ops::barrier(context);
  });
}

/// No file stays behind, and what a full disk says is heard.
TEST(ActivationCache, AFullDiskIsNamed) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    CacheOptions options = half_in_memory();
    options.memory_bytes = 0;
    std::int64_t number = ::getpid();
    ops::broadcast(context, {.data = &number, .count = 1, .dtype = Dtype::Int64}, 0);
    options.folder += fmt::format("/activation_cache_test_{}", number);
    std::filesystem::create_directory(options.folder);
    ops::barrier(context);
    ActivationCache cache(context, options);
    ops::barrier(context);
    EXPECT_TRUE(std::filesystem::is_empty(options.folder));
    cache.begin_generation(kRowBytes);
    ops::barrier(context);
    if (context.rank() == 0) {
      rlimit before{};
      ::getrlimit(RLIMIT_FSIZE, &before);
      auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
      rlimit none = before;
      none.rlim_cur = 100;
      ::setrlimit(RLIMIT_FSIZE, &none);
      const std::string text = error_of<TransportError>([&] { cache.store(0, 1, row_of(0)); });
      ::setrlimit(RLIMIT_FSIZE, &before);
      std::signal(SIGXFSZ, handler);
      EXPECT_THAT(text, HasSubstr("activation cache: expected to write 200 bytes of '"));
      EXPECT_THAT(text, HasSubstr("File too large"));
      Row row{};
      EXPECT_FALSE(cache.find(0, 1, row)) << "half a row";
      cache.store(1, 1, row_of(1));
      EXPECT_TRUE(cache.find(1, 1, row));
      std::filesystem::remove(options.folder);
    }
    ops::barrier(context);
  });
}

TEST(ActivationCache, WhatMakesNoCacheIsRefused) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    const auto refusal = [&](const CacheOptions& options) {
      return error_of<InvalidArgument>([&] { ActivationCache(context, options); });
    };
    EXPECT_THAT(refusal({.samples = 0}), HasSubstr("expected at least 1 sample"));
    EXPECT_THAT(refusal({.samples = 1, .memory_bytes = -1}), HasSubstr("found 1, -1 and 0"));
    EXPECT_THAT(refusal({.samples = 1, .disk_bytes = 1}), HasSubstr("expected a folder"));
  });
  on_ranks(pipeline_ranks(1, 1), [](Context& context) {
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  ActivationCache(context,
                                  {.samples = 1, .disk_bytes = 1, .folder = "/no/such/folder"});
                }),
                HasSubstr("expected a file that can be written in '/no/such/folder', found: No "
                          "such file or directory"));
    constexpr std::int64_t kPebibyte = std::int64_t{1} << 50;
    EXPECT_THAT(error_of<InvalidArgument>(
                    [&] { ActivationCache(context, {.samples = 1, .memory_bytes = kPebibyte}); }),
                HasSubstr("expected memory for 1125899906842624 bytes of rows"));
  });
}

}  // namespace
}  // namespace bluefog::testing
