#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "pipeline/pipeline.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {

/// Sums of some hundred float64 values of size 1, in another order.
constexpr double kPipelineTolerance = 1e-12;
constexpr std::int64_t kFeatures = 6;
constexpr std::int64_t kClasses = 4;

/// Up to four ranks of one host: what is computed does not depend on the transport.
Ranks pipeline_ranks(int at_least = 1, int at_most = 4);

/// Float64 values around 0 that depend on the seed alone.
at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed);

/// Five layers with parameters and some without, in float64, with the same values everywhere.
torch::nn::Sequential five_layers();
/// The numbers of stages of five layers that so many ranks can have.
std::vector<int> stages_on(int ranks);

/// The mean of squared differences.
at::Tensor squares(const at::Tensor& outputs, const at::Tensor& targets);

/// Inputs and targets of all pipelines, and how a pipeline's rows are cut out of them.
struct AllRows {
  at::Tensor inputs;
  at::Tensor targets;

  explicit AllRows(std::int64_t rows, std::uint64_t seed = 1);
  /// The rows of one of several pipelines: about equal shares, or `first` for the first pipeline and
  /// equal shares of the rest.
  [[nodiscard]] pipeline::PipelineBatch of(const pipeline::PipelineLayout& layout, int rank) const;
  [[nodiscard]] AllRows narrow(std::int64_t begin, std::int64_t count) const;
};

/// Parameters of a model by their names in it.
at::Tensor parameter_of(const torch::nn::Sequential& model, const std::string& name);

/// Whether each parameter of this rank's stage has the gradient that the reference has.
void expect_gradients(const pipeline::Pipeline& pipeline, const torch::nn::Sequential& reference);
/// Whether each trained parameter of this rank's stage is as the reference's, to roundings.
void expect_parameters(const pipeline::Pipeline& pipeline, const torch::nn::Sequential& reference);

/// Whether the replicas of each stage have the same bits.
void expect_equal_replicas(Context& context, const pipeline::Pipeline& pipeline);

}  // namespace bluefog::testing
