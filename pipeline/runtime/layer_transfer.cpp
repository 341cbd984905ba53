#include "pipeline/runtime/layer_transfer.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "bluefog_cpp/work.hpp"
#include "ops/message.hpp"
#include "optimizers/parameter.hpp"
#include "pipeline/runtime/stage_links.hpp"

namespace bluefog::pipeline {
namespace {

constexpr int kTag = static_cast<int>(MessageTag::Layer);

std::vector<at::Tensor> parameters_of(const std::vector<LayerTensor>& tensors) {
  std::vector<at::Tensor> parameters;
  for (const LayerTensor& item : tensors) {
    if (item.is_parameter) {
      parameters.push_back(item.tensor);
    }
  }
  return parameters;
}

/// Sends and receives one layer after the other, so that the k-th message of a rank is the k-th
/// receipt of the other.
class Transfer {
 public:
  Transfer(Context& context, Layers& layers, optimizers::ParameterStates& states)
      : context_(context), layers_(layers), states_(states) {}

  void send(const LayerMove& move) {
    const std::vector<LayerTensor>& tensors = layers_.tensors(move.layer);
    const std::vector<at::Tensor> parameters = parameters_of(tensors);
    auto summary = std::make_shared<std::vector<std::int64_t>>(states_.summarize(parameters));
    BufferView numbers{.data = summary->data(),
                       .count = static_cast<std::int64_t>(summary->size()),
                       .dtype = Dtype::Int64};
    const optimizers::NamedTensors state = states_.adopt(parameters, *summary);
    numbers.owner = std::move(summary);
    sent_.push_back(ops::send_nonblocking(context_, numbers, move.to, kTag));
    for (const LayerTensor& item : tensors) {
      send(item.tensor, move.to);
    }
    for (const auto& [name, tensor] : state) {
      send(tensor, move.to);
    }
  }

  void receive(const LayerMove& move) {
    layers_.make_room(move.layer);
    const std::vector<LayerTensor>& tensors = layers_.tensors(move.layer);
    const std::vector<at::Tensor> parameters = parameters_of(tensors);
    std::vector<std::int64_t> summary(parameters.size() * optimizers::ParameterStates::kNumbers);
    ops::receive_nonblocking(context_,
                             {.data = summary.data(),
                              .count = static_cast<std::int64_t>(summary.size()),
                              .dtype = Dtype::Int64},
                             move.from, kTag)
        .wait();
    for (const LayerTensor& item : tensors) {
      receive(item.tensor, move.from);
    }
    for (const at::Tensor& parameter : parameters) {
      states_.forget(parameter);  // of an earlier stay, or made for a parameter without memory
    }
    for (const auto& [name, tensor] : states_.adopt(parameters, summary)) {
      receive(tensor, move.from);
    }
  }

  void finish() {
    for (const Work& work : sent_) {
      work.wait();
    }
  }

 private:
  void send(const at::Tensor& tensor, int target) {
    sent_.push_back(ops::send_nonblocking(
        context_, optimizers::view_of(tensor.detach().contiguous()), target, kTag));
  }
  void receive(const at::Tensor& tensor, int source) {
    const at::Tensor values = tensor.detach();
    at::Tensor room = at::empty(values.sizes(), values.options());
    ops::receive_nonblocking(context_, optimizers::view_of(room), source, kTag).wait();
    values.copy_(room);
  }

  Context& context_;
  Layers& layers_;
  optimizers::ParameterStates& states_;
  std::vector<Work> sent_;
};

}  // namespace

void transfer_layers(Context& context, const std::vector<LayerMove>& moves, Layers& layers,
                     optimizers::ParameterStates& states) {
  const torch::NoGradGuard no_grad;
  Transfer transfer(context, layers, states);
  for (const LayerMove& move : moves) {
    if (move.from == context.rank()) {
      transfer.send(move);
    }
  }
  for (const LayerMove& move : moves) {
    if (move.to == context.rank()) {
      transfer.receive(move);
    }
  }
  transfer.finish();
}

}  // namespace bluefog::pipeline
