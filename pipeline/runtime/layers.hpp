#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <string>
#include <vector>

#include "optimizers/parameter.hpp"

namespace bluefog::pipeline {

/// A tensor of a layer, which may be without memory, with what it takes to give it some.
struct LayerTensor {
  std::string name;
  at::Tensor tensor;
  std::vector<std::int64_t> sizes;
  bool is_parameter = false;  ///< or a buffer
  bool is_trainable = false;  ///< a parameter that the model's owner wants trained
};

/// The layers of a sequential model on this rank. All keep their place in the model; those of other
/// stages have no memory.
class Layers {
 public:
  /// @throws InvalidArgument for a model that no pipeline takes.
  explicit Layers(const std::shared_ptr<torch::nn::Module>& model);

  [[nodiscard]] int count() const noexcept { return static_cast<int>(layers_.size()); }
  [[nodiscard]] const torch::nn::Module& model() const noexcept { return *model_; }
  /// "layer 3 (torch::nn::LinearImpl)".
  [[nodiscard]] std::string describe(int layer) const;

  /// @throws InvalidArgument naming the layer, for what torch refuses.
  [[nodiscard]] at::Tensor forward(int layer, const at::Tensor& input);

  /// Parameters, then buffers.
  [[nodiscard]] const std::vector<LayerTensor>& tensors(int layer) const;
  /// Parameters that are to be trained and are not frozen.
  [[nodiscard]] std::vector<LayerTensor> trained(int layer) const;
  /// The layer's number of parameters.
  [[nodiscard]] double size(int layer) const;
  /// The first layer from `layer` on that is trained, or `count()`.
  [[nodiscard]] int first_trained(int layer) const;

  /// Without gradients, in evaluation mode, from now on.
  void freeze(int layer);
  /// Lets go of the memory of parameters, buffers and gradients.
  void drop(int layer);
  /// Memory for parameters and buffers, with any values.
  void make_room(int layer);

 private:
  struct Layer {
    torch::nn::AnyModule call;
    std::vector<LayerTensor> tensors;
    bool is_frozen = false;
  };
  [[nodiscard]] const Layer& at(int layer) const {
    return layers_.at(static_cast<std::size_t>(layer));
  }
  [[nodiscard]] Layer& at(int layer) { return layers_.at(static_cast<std::size_t>(layer)); }
  void check_tensors() const;

  std::shared_ptr<torch::nn::SequentialImpl> model_;
  std::vector<Layer> layers_;
};

}  // namespace bluefog::pipeline
