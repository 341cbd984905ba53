// Steps of a pipeline are those of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "pipeline/pipeline.hpp"
#include "tests/bodies/pipeline/support.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using pipeline::Pipeline;
using pipeline::PipelineOptions;
using pipeline::ReplicaSync;
using pipeline::ScheduleKind;
using pipeline::StepResult;

constexpr ScheduleKind kSchedules[] = {ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward};

Pipeline pipeline_on(Context& context, const torch::nn::Sequential& model,
                     const PipelineOptions& options) {
  return {context.shared_from_this(), model.ptr(), squares, options};
}

/// Loss and gradients of one process with all rows.
double reference_pass(torch::nn::Sequential& reference, const AllRows& rows) {
  reference->zero_grad();
  const at::Tensor loss = squares(reference->forward(rows.inputs), rows.targets);
  loss.backward();
  return loss.item<double>();
}

TEST(Pipeline, LossAndGradientsAreThoseOfOneProcess) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    for (const int stages : stages_on(context.size())) {
      for (const ScheduleKind schedule : kSchedules) {
        for (const int chunks : {1, 2, 5, 16}) {
          auto model = five_layers();
          Pipeline pipeline = pipeline_on(
              context, model, {.stages = stages, .schedule = schedule, .micro_batches = chunks});
          EXPECT_EQ(pipeline.micro_batches(), chunks);
          for (const std::int64_t count : {13, 8}) {
            const AllRows rows(count, static_cast<std::uint64_t>(count));
            auto reference = five_layers();
            const StepResult result =
                pipeline.compute_gradients(rows.of(pipeline.layout(), context.rank()));
            reference_pass(reference, rows);
            expect_gradients(pipeline, reference);
            EXPECT_EQ(result.loss.has_value(), pipeline.stage() == stages - 1);
            if (result.loss) {
              const auto batch = rows.of(pipeline.layout(), context.rank());
              const std::int64_t begin = count * pipeline.replica() / pipeline.layout().replicas();
              auto own = five_layers();
              EXPECT_NEAR(*result.loss, reference_pass(own, rows.narrow(begin, batch.rows)),
                          kPipelineTolerance);
            }
          }
        }
      }
    }
  });
}

TEST(Pipeline, GivenCostsDecideWhereStagesEnd) {
  on_ranks(pipeline_ranks(2, 2), [](Context& context) {
    auto model = five_layers();
    const std::vector<double> costs{1, 0, 1, 1, 0, 9, 0, 1};
    const Pipeline pipeline = pipeline_on(context, model, {.stages = 2, .costs = costs});
    EXPECT_EQ(pipeline.costs(), costs);
    EXPECT_EQ(pipeline.partition(), pipeline::Partition({0, 5}, 8));
    // By numbers of parameters: 56, 72, 16, 63 and 28.
    auto other = five_layers();
    EXPECT_EQ(pipeline_on(context, other, {.stages = 2}).partition(),
              pipeline::Partition({0, 3}, 8));
  });
}

TEST(Pipeline, SchedulesGiveTheSameBits) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    for (const int stages : stages_on(context.size())) {
      std::vector<at::Tensor> first;
      for (const ScheduleKind schedule : kSchedules) {
        auto model = five_layers();
        Pipeline pipeline = pipeline_on(
            context, model, {.stages = stages, .schedule = schedule, .micro_batches = 5});
        const AllRows rows(21);
        pipeline.compute_gradients(rows.of(pipeline.layout(), context.rank()));
        const auto trained = pipeline.trained_parameters();
        for (std::size_t i = 0; i < trained.size(); ++i) {
          if (schedule == ScheduleKind::GPipe) {
            first.push_back(trained[i].tensor.grad().clone());
          } else {
            EXPECT_TRUE(first.at(i).equal(trained[i].tensor.grad())) << trained[i].name;
          }
        }
      }
    }
  });
}

std::unique_ptr<torch::optim::Optimizer> optimizer_over(const torch::nn::Sequential& model,
                                                        bool adam) {
  if (adam) {
    return std::make_unique<torch::optim::AdamW>(model->parameters(), 0.01);
  }
  return std::make_unique<torch::optim::SGD>(
      model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
}

TEST(Pipeline, TrainingIsThatOfOneProcess) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    for (const int stages : stages_on(context.size())) {
      for (const bool adam : {false, true}) {
        auto model = five_layers();
        Pipeline pipeline = pipeline_on(context, model, {.stages = stages, .micro_batches = 3});
        auto optimizer = optimizer_over(model, adam);
        auto reference = five_layers();
        auto alone = optimizer_over(reference, adam);
        for (std::uint64_t step = 0; step < 5; ++step) {
          const AllRows rows(11, 10 + step);
          const auto result = pipeline.step(*optimizer, rows.of(pipeline.layout(), context.rank()));
          EXPECT_GE(result.times.total, result.times.forward + result.times.backward +
                                            result.times.waiting + result.times.averaging +
                                            result.times.optimizer);
          reference_pass(reference, rows);
          alone->step();
        }
        expect_parameters(pipeline, reference);
        expect_equal_replicas(context, pipeline);
      }
    }
  });
}

TEST(Pipeline, RowsOfPipelinesMayDifferAndBeNone) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    const int stages = context.size() == 4 ? 2 : 1;
    auto model = five_layers();
    Pipeline pipeline = pipeline_on(context, model, {.stages = stages, .micro_batches = 4});
    const AllRows all(7);
    // The last pipeline has no rows, the first ones share what there is.
    const pipeline::PipelineLayout fewer(context.size() - stages, stages);
    pipeline::PipelineBatch batch{.rows = 0, .all_rows = 7};
    if (context.rank() < fewer.size()) {
      batch = all.of(fewer, context.rank());
    }
    const auto result = pipeline.compute_gradients(batch);
    EXPECT_EQ(result.loss.has_value(), batch.rows > 0 && pipeline.stage() == stages - 1);
    auto reference = five_layers();
    reference_pass(reference, all);
    expect_gradients(pipeline, reference);
  });
}

TEST(Pipeline, AnotherRanksParametersAreRankZeros) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    if (context.rank() > 0) {
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : model->parameters()) {
        parameter.fill_(context.rank());
      }
    }
    Pipeline pipeline = pipeline_on(context, model, {.stages = context.size()});
    const auto reference = five_layers();
    const auto own = pipeline.trained_parameters();
    for (const auto& [name, tensor] : own) {
      EXPECT_TRUE(tensor.equal(parameter_of(reference, name))) << name;
    }
    // Parameters of other stages have no memory.
    std::int64_t here = 0;
    std::int64_t mine = 0;
    for (const at::Tensor& parameter : model->parameters()) {
      here += parameter.numel();
    }
    for (const auto& [name, tensor] : own) {
      mine += tensor.numel();
    }
    EXPECT_EQ(here, mine);
  });
}

TEST(Pipeline, EvaluationGivesTheOutputsOfOneProcess) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    for (const int stages : stages_on(context.size())) {
      auto model = five_layers();
      Pipeline pipeline = pipeline_on(context, model, {.stages = stages, .micro_batches = 4});
      const AllRows rows(9);
      const auto batch = rows.of(pipeline.layout(), context.rank());
      const auto found = pipeline.evaluate(batch);
      EXPECT_EQ(found.outputs.defined(), pipeline.stage() == stages - 1);
      if (found.outputs.defined()) {
        auto reference = five_layers();
        const std::int64_t begin = 9 * pipeline.replica() / pipeline.layout().replicas();
        const AllRows own = rows.narrow(begin, batch.rows);
        const at::Tensor expected = reference->forward(own.inputs);
        EXPECT_LE((found.outputs - expected).abs().max().item<double>(), kPipelineTolerance);
        EXPECT_NEAR(found.loss.value(), squares(expected, own.targets).item<double>(),
                    kPipelineTolerance);
        EXPECT_FALSE(found.outputs.requires_grad());
      }
      for (const auto& [name, tensor] : pipeline.trained_parameters()) {
        EXPECT_FALSE(tensor.grad().defined() && tensor.grad().abs().max().item<double>() > 0);
      }
    }
  });
}

void expect_averages_over_a_ring(Context& context, int stages) {
  const int replicas = context.size() / stages;
  const MixingMatrix weights = topology::ring(replicas);
  constexpr double kRate = 0.1;
  auto model = five_layers();
  Pipeline pipeline = pipeline_on(
      context, model,
      {.stages = stages,
       .micro_batches = 2,
       .replicas = ReplicaSync::Parameters,
       .make_schedule = [&](int size) { return topology::static_schedule(topology::ring(size)); }});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(kRate));
  std::vector<torch::nn::Sequential> alone;
  for (int i = 0; i < replicas; ++i) {
    alone.push_back(five_layers());
  }
  for (std::uint64_t step = 0; step < 4; ++step) {
    const AllRows rows(5 * replicas, 30 + step);
    pipeline.step(optimizer, rows.of(pipeline.layout(), context.rank()));
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < replicas; ++i) {
      {
        const at::AutoGradMode grad(true);
        reference_pass(alone[static_cast<std::size_t>(i)], rows.narrow(5 * i, 5));
      }
      for (at::Tensor& parameter : alone[static_cast<std::size_t>(i)]->parameters()) {
        parameter.sub_(kRate * parameter.grad());
      }
    }
    const std::size_t count = alone.front()->parameters().size();
    for (std::size_t p = 0; p < count; ++p) {
      std::vector<at::Tensor> before;
      for (auto& one : alone) {
        before.push_back(one->parameters()[p].detach().clone());
      }
      for (int i = 0; i < replicas; ++i) {
        at::Tensor mixed = at::zeros_like(before.front());
        for (int j = 0; j < replicas; ++j) {
          mixed += weights.weight(i, j) * before[static_cast<std::size_t>(j)];
        }
        alone[static_cast<std::size_t>(i)]->parameters()[p].copy_(mixed);
      }
    }
  }
  expect_parameters(pipeline, alone[static_cast<std::size_t>(pipeline.replica())]);
  pipeline.average_replicas();
  expect_equal_replicas(context, pipeline);
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < alone.front()->parameters().size(); ++p) {
    at::Tensor mean = at::zeros_like(alone.front()->parameters()[p]);
    for (auto& one : alone) {
      mean += one->parameters()[p] / replicas;
    }
    alone.front()->parameters()[p].copy_(mean);
  }
  expect_parameters(pipeline, alone.front());
}

TEST(Pipeline, DecentralizedReplicasAverageOverTheirGraph) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    expect_averages_over_a_ring(context, 1);  // four have neighbours that are not all
    if (context.size() == 4) {
      expect_averages_over_a_ring(context, 2);
    }
  });
}

TEST(Pipeline, TheNumberOfMicroBatchesIsChosenByTrial) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    for (const int stages : stages_on(context.size())) {
      torch::nn::Sequential model(torch::nn::Linear(kFeatures, 8), torch::nn::BatchNorm1d(8),
                                  torch::nn::Linear(8, 8), torch::nn::Linear(8, 8),
                                  torch::nn::Linear(8, kClasses));
      model->to(at::kDouble);
      Pipeline pipeline = pipeline_on(context, model, {.stages = stages});
      const AllRows rows(64 * context.size());
      const auto batch = rows.of(pipeline.layout(), context.rank());
      const int chosen = pipeline.choose_micro_batches(batch, {2, 3, 5});
      EXPECT_TRUE(chosen == 2 || chosen == 3 || chosen == 5) << chosen;
      EXPECT_EQ(pipeline.micro_batches(), chosen);
      std::int64_t least = chosen;
      ops::allreduce(context, {.data = &least, .count = 1, .dtype = Dtype::Int64},
                     {.reduction = ops::Reduction::Min});
      EXPECT_EQ(least, chosen) << "the same on all ranks";
      // Nothing is left of the trials.
      if (pipeline.partition().stage_of(1) == pipeline.stage()) {
        EXPECT_EQ(model->ptr(1)->named_buffers()["num_batches_tracked"].item<std::int64_t>(), 0);
      }
      for (const auto& [name, tensor] : pipeline.trained_parameters()) {
        EXPECT_FALSE(tensor.grad().defined() && tensor.grad().abs().max().item<double>() > 0);
      }
      EXPECT_EQ(pipeline.choose_micro_batches(batch, {4}), 4);
      const int usual = pipeline.choose_micro_batches(batch);
      EXPECT_EQ(usual % stages, 0);
      EXPECT_LE(usual, 8 * stages);
    }
  });
}

TEST(Pipeline, GradientNormsAreOfAllLayersOnAllRanks) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline = pipeline_on(context, model, {.stages = context.size()});
    const AllRows rows(10);
    pipeline.compute_gradients(rows.of(pipeline.layout(), context.rank()));
    const std::vector<double> found = pipeline.gradient_norms();
    auto reference = five_layers();
    reference_pass(reference, rows);
    ASSERT_EQ(found.size(), 8U);
    for (std::size_t layer = 0; layer < found.size(); ++layer) {
      double squared = 0;
      for (const at::Tensor& parameter : reference->ptr(layer)->parameters()) {
        squared += parameter.grad().square().sum().item<double>();
      }
      EXPECT_NEAR(found[layer], std::sqrt(squared), kPipelineTolerance) << layer;
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
