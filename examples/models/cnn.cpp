#include "examples/models/cnn.hpp"

#include <torch/torch.h>

namespace bluefog::examples {
namespace {

namespace nn = torch::nn;

constexpr int kFirstChannels = 32;
constexpr int kSecondChannels = 64;
constexpr int kHidden = 128;

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1));
}

class Cnn final : public ImageModel {
 public:
  explicit Cnn(const ModelShape& shape) {
    const std::int64_t side = shape.image_size / 4;
    conv1_ = register_module("conv1", conv3x3(shape.in_channels, kFirstChannels));
    conv2_ = register_module("conv2", conv3x3(kFirstChannels, kSecondChannels));
    hidden_ = register_module("hidden", nn::Linear(kSecondChannels * side * side, kHidden));
    output_ = register_module("output", nn::Linear(kHidden, shape.num_classes));
  }

  at::Tensor forward(const at::Tensor& images) override {
    // ReLU and pooling commute; pooling first leaves a quarter of the values to compare.
    at::Tensor x = torch::relu(torch::max_pool2d(conv1_->forward(images), 2));
    x = torch::relu(torch::max_pool2d(conv2_->forward(x), 2));
    return output_->forward(torch::relu(hidden_->forward(x.flatten(1))));
  }

 private:
  nn::Conv2d conv1_{nullptr};
  nn::Conv2d conv2_{nullptr};
  nn::Linear hidden_{nullptr};
  nn::Linear output_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_cnn(const ModelShape& shape) {
  return std::make_shared<Cnn>(shape);
}

}  // namespace bluefog::examples
