#include "tests/bodies/pipeline/support.hpp"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "ops/collectives.hpp"

namespace bluefog::testing {

Ranks pipeline_ranks(int at_least, int at_most) {
  return {.at_least = at_least, .at_most = at_most, .layouts = {Layout::OneHost}};
}

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution(0.0, 0.5);
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = distribution(engine);
  }
  return tensor;
}

torch::nn::Sequential five_layers() {
  torch::nn::Sequential model(
      torch::nn::Linear(kFeatures, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})), torch::nn::Tanh(),
      torch::nn::Linear(8, 7), torch::nn::ReLU(torch::nn::ReLUOptions(true)),
      torch::nn::Linear(torch::nn::LinearOptions(7, kClasses).bias(false)));
  model->to(at::kDouble);
  const torch::NoGradGuard no_grad;
  std::uint64_t seed = 100;
  for (at::Tensor& parameter : model->parameters()) {
    parameter.copy_(drawn(parameter.sizes(), seed++));
  }
  return model;
}

std::vector<int> stages_on(int ranks) {
  std::vector<int> found;
  for (int stages = 1; stages <= ranks; ++stages) {
    if (ranks % stages == 0) {
      found.push_back(stages);
    }
  }
  return found;
}

at::Tensor squares(const at::Tensor& outputs, const at::Tensor& targets) {
  return (outputs - targets).square().sum(1).mean();
}

AllRows::AllRows(std::int64_t rows, std::uint64_t seed)
    : inputs(drawn({rows, kFeatures}, seed)), targets(drawn({rows, kClasses}, seed + 50)) {}

AllRows AllRows::narrow(std::int64_t begin, std::int64_t count) const {
  AllRows part(0);
  part.inputs = inputs.narrow(0, begin, count);
  part.targets = targets.narrow(0, begin, count);
  return part;
}

pipeline::PipelineBatch AllRows::of(const pipeline::PipelineLayout& layout, int rank) const {
  const std::int64_t rows = inputs.size(0);
  const std::int64_t replicas = layout.replicas();
  const std::int64_t replica = layout.replica_of(rank);
  const std::int64_t begin = rows * replica / replicas;
  const std::int64_t own = rows * (replica + 1) / replicas - begin;
  pipeline::PipelineBatch batch{.rows = own, .all_rows = rows};
  if (layout.stage_of(rank) == 0) {
    batch.inputs = inputs.narrow(0, begin, own);
  }
  if (layout.stage_of(rank) == layout.stages() - 1) {
    batch.targets = targets.narrow(0, begin, own);
  }
  return batch;
}

at::Tensor parameter_of(const torch::nn::Sequential& model, const std::string& name) {
  return model->named_parameters()[name];
}

void expect_gradients(const pipeline::Pipeline& pipeline, const torch::nn::Sequential& reference) {
  const optimizers::NamedTensors trained = pipeline.trained_parameters();
  EXPECT_FALSE(trained.empty());
  for (const auto& [name, tensor] : trained) {
    ASSERT_TRUE(tensor.grad().defined()) << name;
    const at::Tensor expected = parameter_of(reference, name).grad();
    EXPECT_LE((tensor.grad() - expected).abs().max().item<double>(), kPipelineTolerance) << name;
  }
}

void expect_parameters(const pipeline::Pipeline& pipeline, const torch::nn::Sequential& reference) {
  for (const auto& [name, tensor] : pipeline.trained_parameters()) {
    const at::Tensor expected = parameter_of(reference, name);
    ASSERT_EQ(tensor.sizes(), expected.sizes()) << name;
    EXPECT_LE((tensor - expected).abs().max().item<double>(), kPipelineTolerance) << name;
  }
}

void expect_equal_replicas(Context& context, const pipeline::Pipeline& pipeline) {
  const std::vector<int> ranks = pipeline.layout().ranks_of_stage(pipeline.stage());
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : pipeline.trained_parameters()) {
    values.push_back(tensor.detach().flatten());
  }
  const at::Tensor own = at::cat(values);
  at::Tensor least = own.clone();
  at::Tensor most = own.clone();
  for (const auto& [tensor, reduction] :
       {std::pair(least, ops::Reduction::Min), std::pair(most, ops::Reduction::Max)}) {
    ops::allreduce(context,
                   {.data = tensor.data_ptr(), .count = tensor.numel(), .dtype = Dtype::Float64},
                   {.reduction = reduction, .ranks = ranks});
  }
  EXPECT_TRUE(least.equal(own) && most.equal(own));
}

}  // namespace bluefog::testing
