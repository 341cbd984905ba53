#include "pipeline/elastic_plan.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {
namespace {

FreezeOptions freeze_options(std::size_t layers, const ElasticOptions& options) {
  const int encoder = static_cast<int>(layers) - options.embedding_layers - options.head_layers;
  if (options.embedding_layers < 0 || options.head_layers < 0 || encoder < 1) {
    throw InvalidArgument(
        fmt::format("elastic plan: expected embedding and head of 0 layers or more that leave at "
                    "least 1 of {}, found {} and {}",
                    layers, options.embedding_layers, options.head_layers));
  }
  return {.layers = encoder, .alpha = options.alpha, .last = options.last};
}

}  // namespace

ElasticPlan::ElasticPlan(std::span<const double> costs, const PartitionOptions& start,
                         const ElasticOptions& options)
    : costs_(costs.begin(), costs.end()),
      start_(start),
      options_(options),
      schedule_(freeze_options(costs.size(), options)),
      limit_(largest_stage(costs, 0, partition_layers(costs, start))),
      arrangement_{.stages = start.stages, .frozen = 0} {
  if (start.frozen != 0) {
    throw InvalidArgument(fmt::format(
        "elastic plan: expected no frozen layers at the start, found {}", start.frozen));
  }
}

Arrangement ElasticPlan::advance(std::span<const double> gradient_norms) {
  if (!options_.freezes) {
    return arrangement_;
  }
  if (gradient_norms.empty()) {
    schedule_.advance();
  } else {
    if (gradient_norms.size() != costs_.size()) {
      throw InvalidArgument(
          fmt::format("elastic plan: expected the gradient norms of {} layers, found {}",
                      costs_.size(), gradient_norms.size()));
    }
    const auto first = static_cast<std::size_t>(options_.embedding_layers + schedule_.depth());
    schedule_.advance(gradient_norms.subspan(
        first, static_cast<std::size_t>(schedule_.layers() - schedule_.depth())));
  }
  arrangement_.frozen = schedule_.depth() == 0 ? 0 : options_.embedding_layers + schedule_.depth();
  if (options_.shrinks) {
    PartitionOptions now = start_;
    now.stages = arrangement_.stages;
    now.frozen = arrangement_.frozen;
    arrangement_.stages = fewest_stages(costs_, now, limit_);
  }
  return arrangement_;
}

}  // namespace bluefog::pipeline
