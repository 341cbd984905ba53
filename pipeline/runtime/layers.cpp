#include "pipeline/runtime/layers.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <unordered_map>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/bucket.hpp"

namespace bluefog::pipeline {
namespace {

std::shared_ptr<torch::nn::SequentialImpl> sequence_of(
    const std::shared_ptr<torch::nn::Module>& model) {
  if (!model) {
    throw InvalidArgument("Pipeline: expected a model, found a null pointer");
  }
  auto sequence = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model);
  if (!sequence) {
    throw InvalidArgument(fmt::format(
        "Pipeline: expected a model that is a sequence (torch::nn::Sequential), found a "
        "{}",
        model->name()));
  }
  return sequence;
}

std::vector<LayerTensor> tensors_of(const torch::nn::Module& module, int layer) {
  std::vector<LayerTensor> tensors;
  const auto add = [&](const optimizers::NamedTensors& found, bool are_parameters) {
    for (const auto& [name, tensor] : found) {
      tensors.push_back({.name = fmt::format("{}.{}", layer, name),
                         .tensor = tensor,
                         .sizes = tensor.sizes().vec(),
                         .is_parameter = are_parameters,
                         .is_trainable = are_parameters && tensor.requires_grad()});
    }
  };
  add(optimizers::named_parameters(module), true);
  add(optimizers::named_buffers(module), false);
  return tensors;
}

}  // namespace

Layers::Layers(const std::shared_ptr<torch::nn::Module>& model) : model_(sequence_of(model)) {
  int layer = 0;
  for (torch::nn::AnyModule& call : *model_) {
    layers_.push_back({.call = call, .tensors = tensors_of(*call.ptr(), layer)});
    ++layer;
  }
  check_tensors();
}

void Layers::check_tensors() const {
  std::unordered_map<const at::TensorImpl*, std::string> owners;
  const at::Tensor* first = nullptr;
  for (const Layer& layer : layers_) {
    for (const LayerTensor& item : layer.tensors) {
      const auto [owner, is_new] = owners.emplace(item.tensor.unsafeGetTensorImpl(), item.name);
      const auto refuse = [&](const std::string& expected, const std::string& found) {
        throw InvalidArgument(fmt::format("Pipeline: expected {}, found {}", expected, found));
      };
      if (!is_new) {
        refuse("layers that share no tensor", fmt::format("{} to be {}", item.name, owner->second));
      }
      if (!item.is_trainable) {
        continue;
      }
      const std::string problem = optimizers::why_unsupported(item.tensor);
      if (!problem.empty()) {
        refuse("parameters that can be averaged", fmt::format("{}: {}", item.name, problem));
      }
      if (optimizers::is_in_a_bucket(item.tensor)) {
        refuse("parameters of no distributed optimizer", item.name + " to be one's");
      }
      first = first == nullptr ? &item.tensor : first;
      if (item.tensor.scalar_type() != first->scalar_type()) {
        refuse("parameters of one dtype",
               fmt::format("{} to be {}", item.name, optimizers::describe(item.tensor)));
      }
    }
  }
}

std::string Layers::describe(int layer) const {
  return fmt::format("layer {} ({})", layer, at(layer).call.ptr()->name());
}

at::Tensor Layers::forward(int layer, const at::Tensor& input) {
  const std::shared_ptr<torch::nn::Module> module = at(layer).call.ptr();
  if (at(layer).is_frozen && module->is_training()) {
    module->eval();  // train() of the whole model has set it
  }
  try {
    return at(layer).call.forward(input);
  } catch (const c10::Error& error) {
    throw InvalidArgument(fmt::format("{}: {}", describe(layer), error.what_without_backtrace()));
  }
}

const std::vector<LayerTensor>& Layers::tensors(int layer) const { return at(layer).tensors; }

std::vector<LayerTensor> Layers::trained(int layer) const {
  std::vector<LayerTensor> found;
  for (const LayerTensor& item : at(layer).tensors) {
    if (item.is_trainable && !at(layer).is_frozen) {
      found.push_back(item);
    }
  }
  return found;
}

double Layers::size(int layer) const {
  double count = 0;
  for (const LayerTensor& item : at(layer).tensors) {
    count += item.is_parameter ? static_cast<double>(c10::multiply_integers(item.sizes)) : 0.0;
  }
  return count;
}

int Layers::first_trained(int layer) const {
  while (layer < count() && trained(layer).empty()) {
    ++layer;
  }
  return layer;
}

void Layers::freeze(int layer) {
  at(layer).is_frozen = true;
  at(layer).call.ptr()->eval();
  for (LayerTensor& item : at(layer).tensors) {
    if (item.is_trainable) {
      item.tensor.mutable_grad().reset();
      item.tensor.set_requires_grad(false);
    }
  }
}

void Layers::drop(int layer) {
  for (LayerTensor& item : at(layer).tensors) {
    item.tensor.mutable_grad().reset();
    item.tensor.set_data(at::empty({0}, item.tensor.options()));
  }
}

void Layers::make_room(int layer) {
  for (LayerTensor& item : at(layer).tensors) {
    item.tensor.set_data(at::empty(item.sizes, item.tensor.options()));
  }
}

}  // namespace bluefog::pipeline
