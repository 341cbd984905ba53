// Outputs of frozen layers that are computed once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "pipeline/epoch_shares.hpp"
#include "pipeline/pipeline.hpp"
#include "pipeline/runtime/activation_cache.hpp"
#include "tests/bodies/pipeline/support.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using pipeline::ActivationCache;
using pipeline::CacheOptions;
using pipeline::Pipeline;
using ::testing::HasSubstr;

constexpr std::int64_t kSamples = 40;
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
  return {.samples = kSamples,
          .memory_bytes = kSamples / 2 * 256,
          .disk_bytes = kSamples / 4 * 256,
          .folder = folder()};
}

TEST(ActivationCache, EveryRankOfAHostFindsTheVeryBytes) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    ActivationCache cache(context, half_in_memory());
    cache.begin_generation(kRowBytes);
    const auto size = static_cast<std::int64_t>(context.size());
    for (std::int64_t sample = context.rank(); sample < kSamples; sample += size) {
      cache.store(sample, 11, row_of(sample));
    }
    ops::barrier(context);
    std::int64_t found = 0;
    for (std::int64_t sample = 0; sample < kSamples; ++sample) {
      Row row{};
      if (cache.find(sample, 11, row)) {
        EXPECT_EQ(row, row_of(sample)) << sample;
        ++found;
      }
    }
    // Shares of the memory are whole rows.
    EXPECT_LE(found, kSamples * 3 / 4);
    EXPECT_GE(found, kSamples * 3 / 4 - size);
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
  });
}

/// Epochs of a pipeline, with a cache or without.
class EpochRun {
 public:
  EpochRun(Context& context, int stages, const std::optional<CacheOptions>& cache)
      : context_(context),
        pipeline_(context.shared_from_this(), model_.ptr(), squares,
                  {.stages = stages, .micro_batches = 3, .cache = cache}),
        optimizer_(model_->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)) {}

  void rearrange(const pipeline::Arrangement& wanted) { pipeline_.rearrange(wanted, optimizer_); }

  /// @return the rows that came from the cache, on all ranks together.
  std::int64_t train_epoch(std::int64_t epoch) {
    shares_.begin_epoch(epoch);
    std::int64_t cached = 0;
    while (shares_.left() > 0) {
      const auto own = shares_.next(pipeline_.layout().replicas(), pipeline_.replica());
      const at::Tensor rows = torch::tensor(own.samples, at::kLong);
      cached += pipeline_
                    .step(optimizer_, {.inputs = data_.inputs.index_select(0, rows),
                                       .targets = data_.targets.index_select(0, rows),
                                       .rows = std::ssize(own.samples),
                                       .all_rows = own.rows,
                                       .samples = own.samples})
                    .cached_rows;
    }
    ops::allreduce(context_, {.data = &cached, .count = 1, .dtype = Dtype::Int64},
                   {.reduction = ops::Reduction::Sum});
    return cached;
  }
  Pipeline& pipeline() { return pipeline_; }
  torch::nn::Sequential& model() { return model_; }

 private:
  Context& context_;
  AllRows data_{kSamples};
  torch::nn::Sequential model_ = five_layers();
  Pipeline pipeline_;
  torch::optim::SGD optimizer_;
  pipeline::EpochShares shares_{kSamples, 12, 4};
};

CacheOptions for_all(std::int64_t memory_rows) {
  // Rows of 8 values take 64 bytes.
  return {.samples = kSamples,
          .memory_bytes = memory_rows * 64,
          .disk_bytes = 1 << 20,
          .folder = folder()};
}

TEST(CachedOutputs, TrainingIsWhatItIsWithoutThem) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    const int stages = context.size() == 4 ? 2 : 1;
    EpochRun plain(context, stages, {});
    EpochRun cached(context, stages, for_all(kSamples / 2));
    EXPECT_EQ(cached.train_epoch(0), 0);
    plain.train_epoch(0);
    for (const pipeline::Arrangement& wanted :
         {pipeline::Arrangement{.stages = stages, .frozen = 2},
          pipeline::Arrangement{.stages = 1, .frozen = 4}}) {
      plain.rearrange(wanted);
      for (std::int64_t epoch = 1; epoch < 4; ++epoch) {
        cached.rearrange(wanted);  // which it has, from the second epoch on
        plain.train_epoch(epoch);
        // Whichever pipeline has a sample in an epoch finds what another one has stored.
        EXPECT_EQ(cached.train_epoch(epoch), epoch == 1 ? 0 : kSamples);
      }
    }
    const auto expected = plain.pipeline().trained_parameters();
    const auto found = cached.pipeline().trained_parameters();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_LE((found[i].tensor - expected[i].tensor).abs().max().item<double>(),
                kPipelineTolerance);
    }
  });
}

/// Hosts have caches of their own, whose ranks may be those of several pipelines.
TEST(CachedOutputs, AreEachHostsOwn) {
  Ranks ranks = pipeline_ranks(2);
  ranks.layouts = {Layout::TwoHosts, Layout::NetworkOnly};
  on_ranks(ranks, [](Context& context) {
    const int stages = context.size() == 4 ? 2 : 1;
    EpochRun plain(context, stages, {});
    EpochRun cached(context, stages, for_all(kSamples));
    std::int64_t found = 0;
    for (const pipeline::Arrangement& wanted :
         {pipeline::Arrangement{.stages = stages, .frozen = 3},
          pipeline::Arrangement{.stages = 1, .frozen = 5}}) {
      plain.rearrange(wanted);
      cached.rearrange(wanted);
      for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
        plain.train_epoch(epoch);
        found += cached.train_epoch(epoch);
      }
    }
    EXPECT_GT(found, 0);
    EXPECT_LE(found, 6 * kSamples);
    const auto expected = plain.pipeline().trained_parameters();
    const auto own = cached.pipeline().trained_parameters();
    ASSERT_EQ(own.size(), expected.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_LE((own[i].tensor - expected[i].tensor).abs().max().item<double>(),
                kPipelineTolerance);
    }
  });
}

TEST(CachedOutputs, OtherFrozenParametersMakeThemStale) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    EpochRun run(context, 1, for_all(kSamples));
    run.rearrange({.stages = 1, .frozen = 2});
    run.train_epoch(0);
    EXPECT_EQ(run.train_epoch(1), kSamples);
    {
      const torch::NoGradGuard no_grad;
      run.model()->ptr(0)->parameters().front().add_(1);
    }
    EXPECT_EQ(run.train_epoch(2), 0);
  });
}

TEST(CachedOutputs, NumbersOfSamplesThatDoNotFitAreRefused) {
  on_ranks(pipeline_ranks(1, 1), [](Context& context) {
    const auto refusal = [&](const std::vector<std::int64_t>& samples) {
      auto model = five_layers();
      Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                        {.cache = for_all(kSamples)});
      auto batch = AllRows(2).of(pipeline.layout(), 0);
      batch.samples = samples;
      return error_of<InvalidArgument>([&] { pipeline.compute_gradients(batch); });
    };
    EXPECT_THAT(refusal({1}), HasSubstr("the numbers of 2 samples, from 0 to 39, found 1"));
    EXPECT_THAT(refusal({1, 40}), HasSubstr("found 2, 40 among them"));
  });
}

}  // namespace
}  // namespace bluefog::testing
