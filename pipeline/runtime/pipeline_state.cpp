#include "pipeline/runtime/pipeline_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/allreduce.hpp"
#include "optimizers/checks/agreement.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "optimizers/wrapper/states/parameter_states.hpp"
#include "pipeline/runtime/layer_transfer.hpp"

namespace bluefog::pipeline {
namespace {

std::vector<std::string> statement_of(const PipelineOptions& options, const Layers* layers) {
  std::vector<std::string> lines{
      fmt::format("{} stages, {}, {} micro-batches, slack {}, frozen layers count {}",
                  options.stages, name_of(options.schedule), options.micro_batches, options.slack,
                  options.frozen_share),
      options.replicas == ReplicaSync::Gradients
          ? fmt::format("replicas sum gradients in buckets of {} bytes", options.bucket_bytes)
          : "replicas average parameters",
      fmt::format("costs [{}]", fmt::join(options.costs, ", "))};
  for (const SkipConnection& skip : options.skips) {
    lines.push_back(fmt::format("layer {} reads layer {}", skip.to, skip.from));
  }
  for (int layer = 0; layers != nullptr && layer < layers->count(); ++layer) {
    lines.push_back(layers->describe(layer));
    for (const LayerTensor& item : layers->tensors(layer)) {
      lines.push_back(fmt::format("{} {}{}", item.name, optimizers::describe(item.tensor),
                                  item.is_trainable ? ", trained" : ""));
    }
  }
  return lines;
}

optimizers::NamedTensors all_tensors(const Layers& layers) {
  optimizers::NamedTensors tensors;
  for (int layer = 0; layer < layers.count(); ++layer) {
    for (const LayerTensor& item : layers.tensors(layer)) {
      tensors.push_back({item.name, item.tensor});
    }
  }
  return tensors;
}

}  // namespace

Pipeline::State::State(const std::shared_ptr<Context>& context,
                       const std::shared_ptr<torch::nn::Module>& model, Loss loss,
                       const PipelineOptions& options)
    : options_(options), loss_(std::move(loss)) {
  if (!context) {
    throw InvalidArgument("Pipeline: expected a context, found a null pointer");
  }
  context_ = context->duplicate();
  optimizers::Statement statement;
  try {
    prepare(model);
  } catch (const Error& error) {
    statement.problem = error.what();
  }
  statement.lines = statement_of(options_, layers_ ? &*layers_ : nullptr);
  optimizers::check_ranks_agree(*context_, "Pipeline", statement);
  share_first_parameters();
  if (options_.cache) {
    cache_.emplace(*context_, *options_.cache);
  }
  take_place();
}

Pipeline::State::~State() { context_->close(); }

void Pipeline::State::prepare(const std::shared_ptr<torch::nn::Module>& model) {
  layers_.emplace(model);
  if (!loss_) {
    throw InvalidArgument("Pipeline: expected a loss, found none");
  }
  if (options_.micro_batches < 0) {
    throw InvalidArgument(fmt::format("Pipeline: expected 0 micro-batches or more, found {}",
                                      options_.micro_batches));
  }
  if (options_.bucket_bytes < 0) {
    throw InvalidArgument(fmt::format("Pipeline: expected buckets of 0 bytes or more, found {}",
                                      options_.bucket_bytes));
  }
  if (!options_.costs.empty() && static_cast<int>(options_.costs.size()) != layers_->count()) {
    throw InvalidArgument(fmt::format("Pipeline: expected the costs of {} layers, found {}",
                                      layers_->count(), options_.costs.size()));
  }
  costs_ = options_.costs;
  for (int layer = 0; options_.costs.empty() && layer < layers_->count(); ++layer) {
    costs_.push_back(layers_->size(layer));
  }
  placement_ = placed({.stages = options_.stages, .frozen = 0});
}

void Pipeline::State::share_first_parameters() {
  const torch::NoGradGuard no_grad;
  optimizers::broadcast(*context_, all_tensors(*layers_), 0, "Pipeline");
}

Placement Pipeline::State::placed(const Arrangement& wanted) const {
  const PipelineLayout layout(context_->size(), wanted.stages);
  Partition partition = partition_layers(costs_, {.stages = wanted.stages,
                                                  .frozen = wanted.frozen,
                                                  .skips = options_.skips,
                                                  .slack = options_.slack,
                                                  .frozen_share = options_.frozen_share});
  for (int stage = 0; stage < wanted.stages; ++stage) {
    double parameters = 0;
    for (int layer = partition.begin(stage); layer < partition.end(stage); ++layer) {
      parameters += layers_->size(layer);
    }
    if (parameters == 0) {
      throw InvalidArgument(fmt::format(
          "Pipeline: expected stages with parameters, found stage {} of layers {} to {} without",
          stage, partition.begin(stage), partition.end(stage) - 1));
    }
  }
  return {layout, std::move(partition)};
}

// Everything that depends on the placement, for this rank.
void Pipeline::State::take_place() {
  const int own = placement_->layout.stage_of(rank());
  const Partition& partition = placement_->partition;
  for (int layer = 0; layer < layers_->count(); ++layer) {
    if (layer < partition.begin(own) || layer >= partition.end(own)) {
      layers_->drop(layer);
    }
  }
  const int trained = layers_->first_trained(frozen_);
  frozen_outputs_.reset();
  if (cache_) {
    const int kept_depth = std::min(frozen_, partition.end(0));
    if (kept_depth != kept_depth_) {
      cache_->begin_generation();
      older_depth_ = std::exchange(kept_depth_, kept_depth);
    }
    if (own == 0 && kept_depth > 0) {
      frozen_outputs_.emplace(*cache_, *layers_, kept_depth, older_depth_);
    }
  }
  stage_.emplace(*layers_, loss_,
                 StagePart{.begin = partition.begin(own),
                           .end = partition.end(own),
                           .frozen = frozen_,
                           .is_first = own == 0,
                           .is_last = own == partition.stages() - 1,
                           .gives_gradient = trained < partition.begin(own)},
                 frozen_outputs_ ? &*frozen_outputs_ : nullptr);
  links_.emplace(*context_, placement_->layout);
  replicas_.emplace(*context_, placement_->layout, options_, trained_parameters());
}

std::string Pipeline::State::where() const {
  return fmt::format("rank {}, Pipeline, stage {}", rank(), placement_->layout.stage_of(rank()));
}

int Pipeline::State::micro_batches() const noexcept {
  return options_.micro_batches > 0 ? options_.micro_batches
                                    : initial_micro_batches(placement_->layout.stages());
}

optimizers::NamedTensors Pipeline::State::trained_parameters() const {
  const int own = placement_->layout.stage_of(rank());
  optimizers::NamedTensors found;
  for (int layer = placement_->partition.begin(own); layer < placement_->partition.end(own);
       ++layer) {
    for (LayerTensor& item : layers_->trained(layer)) {
      found.push_back({std::move(item.name), std::move(item.tensor)});
    }
  }
  return found;
}

void Pipeline::State::check_works() const {
  if (has_failed_) {
    throw StateError(fmt::format(
        "{}: expected a pipeline that works, found one that an earlier error has ended: "
        "make another one",
        where()));
  }
}

void Pipeline::State::end() noexcept {
  has_failed_ = true;
  context_->close();
}

void Pipeline::State::check_arrangement(const Arrangement& wanted) const {
  if (wanted.frozen < frozen_ || wanted.frozen > layers_->count()) {
    throw InvalidArgument(
        fmt::format("{}: expected {} to {} frozen layers, since frozen ones stay so, found {}",
                    where(), frozen_, layers_->count(), wanted.frozen));
  }
}

void Pipeline::State::rearrange(const Arrangement& wanted, torch::optim::Optimizer& optimizer) {
  guarded([&] {
    check_arrangement(wanted);
    const Placement before = *placement_;
    Placement after = placed(wanted);
    const bool changes = wanted.frozen != frozen_ || wanted.stages != before.layout.stages();
    optimizers::check_ranks_agree(
        *context_, "Pipeline::rearrange",
        {.lines = {fmt::format("{} stages, {} frozen layers", wanted.stages, wanted.frozen)},
         .problem = {}});
    if (!changes) {
      return;  // outputs that are kept stay good
    }
    replicas_.reset();
    for (; frozen_ < wanted.frozen; ++frozen_) {
      for (const LayerTensor& item : layers_->trained(frozen_)) {
        optimizer.state().erase(item.tensor.unsafeGetTensorImpl());
      }
      layers_->freeze(frozen_);
    }
    placement_ = std::move(after);
    move_layers(before, optimizer);
    take_place();
  });
}

void Pipeline::State::move_layers(const Placement& before, torch::optim::Optimizer& optimizer) {
  const std::vector<LayerMove> moves = layer_moves(before, *placement_);
  if (moves.empty()) {
    return;
  }
  optimizers::ParameterStates states(optimizer, where());
  transfer_layers(*context_, moves, *layers_, states);
  const int own = placement_->layout.stage_of(rank());
  for (int layer = 0; layer < layers_->count(); ++layer) {
    if (layer >= placement_->partition.begin(own) && layer < placement_->partition.end(own)) {
      continue;
    }
    for (const LayerTensor& item : layers_->tensors(layer)) {
      states.forget(item.tensor);
    }
  }
}

void Pipeline::State::average_replicas() {
  guarded([&] { replicas_->average_exactly(); });
}

std::vector<double> Pipeline::State::gradient_norms() {
  return guarded([&] {
    const int own = placement_->layout.stage_of(rank());
    std::vector<double> norms(static_cast<std::size_t>(layers_->count()));
    for (int layer = placement_->partition.begin(own);
         layer < placement_->partition.end(own) && placement_->layout.replica_of(rank()) == 0;
         ++layer) {
      double squares = 0;
      for (const LayerTensor& item : layers_->trained(layer)) {
        if (item.tensor.grad().defined()) {
          squares += item.tensor.grad().to(at::kDouble).square().sum().item<double>();
        }
      }
      norms[static_cast<std::size_t>(layer)] = std::sqrt(squares);
    }
    ops::allreduce(*context_,
                   {.data = norms.data(),
                    .count = static_cast<std::int64_t>(norms.size()),
                    .dtype = Dtype::Float64},
                   {.name = "gradient norms", .reduction = ops::Reduction::Sum});
    return norms;
  });
}

}  // namespace bluefog::pipeline
