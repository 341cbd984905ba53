#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bluefog::examples {

/// A classifier of images: N × in_channels × image_size × image_size floats in, N × num_classes
/// logits out.
class ImageModel : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& images) = 0;
};

/// The demands of the data on a model.
struct ModelShape {
  std::int64_t in_channels = 1;
  std::int64_t image_size = 28;  ///< pixels along one side
  std::int64_t num_classes = 10;
};

/// The names that `make_model` knows.
[[nodiscard]] const std::vector<std::string>& model_names();

/// A new model with random parameters, drawn from torch's default generator: seed that first, with
/// the same value on every rank, or broadcast the parameters.
///
/// | name     | model                                                                             |
/// |----------|-----------------------------------------------------------------------------------|
/// | cnn      | two 3×3 convolutions (32 and 64 channels), each with ReLU and pooling, 128 hidden |
/// | resnet18 | ResNet of 4 × 2 basic blocks                                                      |
/// | resnet50 | ResNet of 3, 4, 6, 3 bottleneck blocks                                            |
///
/// The residual networks begin with one 3×3 convolution for images of up to 64 pixels (as is usual
/// for CIFAR), and with a strided 7×7 convolution and pooling for larger ones.
/// @throws InvalidArgument if `name` is unknown (lists the known ones) or `shape` has a value that
///   is not positive or, for `cnn`, fewer than 4 pixels.
[[nodiscard]] std::shared_ptr<ImageModel> make_model(std::string_view name,
                                                     const ModelShape& shape);

}  // namespace bluefog::examples
