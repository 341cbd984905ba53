// Pipelines that freeze, shrink and widen while they train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "pipeline/epoch_shares.hpp"
#include "pipeline/pipeline.hpp"
#include "tests/bodies/pipeline/support.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using pipeline::Arrangement;
using pipeline::Pipeline;
using ::testing::HasSubstr;

std::unique_ptr<torch::optim::Optimizer> optimizer_named(const std::string& name,
                                                         const torch::nn::Sequential& model) {
  const std::vector<at::Tensor> parameters = model->parameters();
  if (name == "AdamW") {
    return std::make_unique<torch::optim::AdamW>(parameters,
                                                 torch::optim::AdamWOptions(0.01).amsgrad(true));
  }
  if (name == "RMSprop") {
    return std::make_unique<torch::optim::RMSprop>(
        parameters, torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
  }
  if (name == "Adagrad") {
    return std::make_unique<torch::optim::Adagrad>(parameters, 0.05);
  }
  return std::make_unique<torch::optim::SGD>(
      parameters, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
}

/// One process that trains the same model, and freezes with it.
struct Alone {
  explicit Alone(const std::string& optimizer_name)
      : optimizer(optimizer_named(optimizer_name, model)) {}

  void step(const AllRows& rows) {
    optimizer->zero_grad();
    squares(model->forward(rows.inputs), rows.targets).backward();
    optimizer->step();
  }
  void freeze(int layers) {
    for (int layer = 0; layer < layers; ++layer) {
      for (at::Tensor& parameter : model->ptr(static_cast<std::size_t>(layer))->parameters()) {
        parameter.mutable_grad().reset();
        parameter.set_requires_grad(false);
      }
    }
  }

  torch::nn::Sequential model = five_layers();
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

/// The arrangements that so many ranks go through: shorter, longer, frozen.
std::vector<Arrangement> arrangements(int ranks) {
  switch (ranks) {
    case 4:
      return {{.stages = 4, .frozen = 0},
              {.stages = 2, .frozen = 3},
              {.stages = 2, .frozen = 4},
              {.stages = 1, .frozen = 6},
              {.stages = 4, .frozen = 6}};
    case 3:
      return {{.stages = 3, .frozen = 0}, {.stages = 1, .frozen = 2}, {.stages = 3, .frozen = 6}};
    case 2:
      return {{.stages = 2, .frozen = 0},
              {.stages = 2, .frozen = 4},
              {.stages = 1, .frozen = 4},
              {.stages = 2, .frozen = 6}};
    default:
      return {{.stages = 1, .frozen = 0}, {.stages = 1, .frozen = 3}};
  }
}

TEST(Rearrangement, TrainingGoesOnAsThatOfOneProcess) {
  Ranks ranks = pipeline_ranks();
  ranks.layouts = {Layout::OneHost, Layout::TwoHosts, Layout::NetworkOnly};
  on_ranks(ranks, [](Context& context) {
    for (const std::string name : {"SGD", "AdamW", "RMSprop", "Adagrad"}) {
      auto model = five_layers();
      const auto steps = arrangements(context.size());
      Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                        {.stages = steps.front().stages, .micro_batches = 3});
      const auto optimizer = optimizer_named(name, model);
      Alone alone(name);
      std::uint64_t seed = 70;
      for (const Arrangement& wanted : steps) {
        pipeline.rearrange(wanted, *optimizer);
        alone.freeze(wanted.frozen);
        EXPECT_EQ(pipeline.frozen(), wanted.frozen);
        EXPECT_EQ(pipeline.layout().stages(), wanted.stages);
        for (int step = 0; step < 3; ++step) {
          const AllRows rows(12, seed++);
          pipeline.step(*optimizer, rows.of(pipeline.layout(), context.rank()));
          alone.step(rows);
        }
        expect_parameters(pipeline, alone.model);
      }
    }
  });
}

/// All parameters of this rank's stage, by name.
std::map<std::string, at::Tensor> held(const torch::nn::Sequential& model) {
  std::map<std::string, at::Tensor> found;
  for (const auto& item : model->named_parameters()) {
    if (item.value().numel() > 0) {
      found[item.key()] = item.value().detach().clone();
    }
  }
  return found;
}

/// Every tensor of the whole model on all ranks, from the ranks that hold it.
std::map<std::string, at::Tensor> gathered(Context& context, const torch::nn::Sequential& model,
                                           const Pipeline& pipeline) {
  std::map<std::string, at::Tensor> all;
  const auto own = held(model);
  for (const auto& item : five_layers()->named_parameters()) {
    at::Tensor sum = at::zeros_like(item.value().detach());
    if (own.contains(item.key()) && pipeline.replica() == 0) {
      sum.copy_(own.at(item.key()));
    }
    ops::allreduce(context, {.data = sum.data_ptr(), .count = sum.numel(), .dtype = Dtype::Float64},
                   {.reduction = ops::Reduction::Sum});
    all[item.key()] = sum;
  }
  return all;
}

TEST(Rearrangement, ParametersStayBitForBit) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    const auto steps = arrangements(context.size());
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                      {.stages = steps.front().stages});
    const auto optimizer = optimizer_named("SGD", model);
    const AllRows rows(10);
    pipeline.step(*optimizer, rows.of(pipeline.layout(), context.rank()));
    const auto before = gathered(context, model, pipeline);
    for (const Arrangement& wanted : steps) {
      pipeline.rearrange(wanted, *optimizer);
      const auto own = held(model);
      for (const auto& [name, values] : own) {
        EXPECT_TRUE(values.equal(before.at(name))) << name;
      }
      const auto after = gathered(context, model, pipeline);
      for (const auto& [name, values] : before) {
        EXPECT_TRUE(values.equal(after.at(name))) << name;
      }
      // No rank holds more than its stage.
      for (int layer = 0; layer < pipeline.partition().layers(); ++layer) {
        const bool is_here = pipeline.partition().stage_of(layer) == pipeline.stage();
        for (const auto& item : model->ptr(static_cast<std::size_t>(layer))->named_parameters()) {
          EXPECT_EQ(item.value().numel() > 0, is_here) << layer << "." << item.key();
        }
      }
    }
  });
}

TEST(Rearrangement, FrozenLayersHaveNoGradientStateOrShareInAverages) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                      {.stages = context.size(), .micro_batches = 2});
    const auto optimizer = optimizer_named("AdamW", model);
    const AllRows rows(9);
    pipeline.step(*optimizer, rows.of(pipeline.layout(), context.rank()));
    pipeline.rearrange({.stages = 1, .frozen = 4}, *optimizer);
    model->train();  // as loops do at the beginning of an epoch
    const auto before = held(model);
    for (const auto& [name, tensor] : pipeline.trained_parameters()) {
      EXPECT_GE(std::stoi(name), 4) << name;
    }
    pipeline.step(*optimizer, rows.of(pipeline.layout(), context.rank()));
    for (int layer = 0; layer < 4; ++layer) {
      const auto& module = model->ptr(static_cast<std::size_t>(layer));
      EXPECT_FALSE(module->is_training());
      for (const auto& item : module->named_parameters()) {
        EXPECT_FALSE(item.value().grad().defined());
        EXPECT_FALSE(item.value().requires_grad());
        EXPECT_EQ(optimizer->state().count(item.value().unsafeGetTensorImpl()), 0U);
        const std::string name = std::to_string(layer) + "." + item.key();
        EXPECT_TRUE(item.value().equal(before.at(name))) << name;
      }
    }
    const std::vector<double> norms = pipeline.gradient_norms();
    EXPECT_EQ(norms.at(2), 0);
    EXPECT_GT(norms.at(5), 0);
  });
}

TEST(Rearrangement, AllFrozenIsForwardAlone) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares, {.stages = context.size()});
    const auto optimizer = optimizer_named("SGD", model);
    pipeline.rearrange({.stages = context.size(), .frozen = 8}, *optimizer);
    const AllRows rows(6);
    const auto result = pipeline.step(*optimizer, rows.of(pipeline.layout(), context.rank()));
    if (result.loss) {
      auto reference = five_layers();
      EXPECT_NEAR(*result.loss,
                  squares(reference->forward(rows.inputs), rows.targets).item<double>(),
                  kPipelineTolerance);
    }
    EXPECT_TRUE(pipeline.trained_parameters().empty());
  });
}

/// Buffers and dtypes that are not the parameters' move too.
TEST(Rearrangement, BuffersMoveWithTheirLayers) {
  on_ranks(pipeline_ranks(2, 2), [](Context& context) {
    torch::manual_seed(5);
    torch::nn::Sequential model(
        torch::nn::Linear(6, 6), torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(6)),
        torch::nn::Linear(6, 6), torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(6)));
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares, {.stages = 2});
    const auto optimizer = optimizer_named("SGD", model);
    pipeline.step(*optimizer,
                  {.inputs = at::rand({32, 6}), .targets = at::rand({32, 6}), .rows = 32});
    pipeline.rearrange({.stages = 1, .frozen = 0}, *optimizer);
    for (const std::size_t layer : {1U, 3U}) {
      const auto buffers = model->ptr(layer)->named_buffers();
      EXPECT_EQ(buffers["num_batches_tracked"].item<std::int64_t>(), 16);
      EXPECT_GT(buffers["running_mean"].abs().max().item<double>(), 0);
    }
  });
}

/// A run as users write it: every sample of an epoch once, through every change.
TEST(Rearrangement, EpochsSeeEverySampleOnceAndTrainAsOneProcess) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    constexpr std::int64_t kEpochSamples = 50;
    const AllRows data(kEpochSamples);
    auto model = five_layers();
    const auto steps = arrangements(context.size());
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                      {.stages = steps.front().stages, .micro_batches = 4});
    const auto optimizer = optimizer_named("SGD", model);
    Alone alone("SGD");
    pipeline::EpochShares shares(kEpochSamples, 16, 3);
    pipeline::EpochShares all(kEpochSamples, 16, 3);
    std::int64_t epoch = 0;
    for (const Arrangement& wanted : steps) {
      shares.begin_epoch(epoch);
      all.begin_epoch(epoch++);
      std::int64_t seen = 0;
      for (int step = 0; shares.left() > 0; ++step) {
        if (step == 1) {  // in the middle of an epoch
          pipeline.rearrange(wanted, *optimizer);
          alone.freeze(wanted.frozen);
        }
        const auto own = shares.next(pipeline.layout().replicas(), pipeline.replica());
        const at::Tensor rows = torch::tensor(own.samples, at::kLong);
        pipeline.step(*optimizer, {.inputs = data.inputs.index_select(0, rows),
                                   .targets = data.targets.index_select(0, rows),
                                   .rows = static_cast<std::int64_t>(own.samples.size()),
                                   .all_rows = own.rows});
        const at::Tensor everyone = torch::tensor(all.next(1, 0).samples, at::kLong);
        AllRows batch(0);
        batch.inputs = data.inputs.index_select(0, everyone);
        batch.targets = data.targets.index_select(0, everyone);
        alone.step(batch);
        seen += own.rows;
      }
      EXPECT_EQ(seen, kEpochSamples);
      expect_parameters(pipeline, alone.model);
    }
  });
}

TEST(Rearrangement, WhatCannotBeIsRefused) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    const auto refusal = [&](const Arrangement& wanted) {
      auto model = five_layers();
      Pipeline pipeline(context.shared_from_this(), model.ptr(), squares);
      const auto optimizer = optimizer_named("SGD", model);
      pipeline.rearrange({.stages = 1, .frozen = 2}, *optimizer);
      return error_of<InvalidArgument>([&] { pipeline.rearrange(wanted, *optimizer); });
    };
    EXPECT_THAT(refusal({.stages = 1, .frozen = 1}),
                HasSubstr("expected 2 to 8 frozen layers, since frozen ones stay so, found 1"));
    EXPECT_THAT(refusal({.stages = 1, .frozen = 9}), HasSubstr("found 9"));
    EXPECT_THAT(refusal({.stages = context.size() + 1, .frozen = 2}),
                HasSubstr("expected a number of stages that divides"));
  });
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares, {.stages = context.size()});
    torch::optim::LBFGS optimizer(model->parameters());
    EXPECT_THAT(error_of<UnsupportedError>(
                    [&] { pipeline.rearrange({.stages = 1, .frozen = 0}, optimizer); }),
                HasSubstr("expected SGD, Adam, AdamW, RMSprop, Adagrad, AccumAdam, AccumAdamW "
                          "or Muon, found "
                          "torch::optim::LBFGS"));
  });
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares);
    const auto optimizer = optimizer_named("SGD", model);
    EXPECT_THROW(pipeline.rearrange({.stages = 1, .frozen = context.rank() % 2}, *optimizer),
                 MismatchError);
  });
}

}  // namespace
}  // namespace bluefog::testing
