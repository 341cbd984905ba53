#include "examples/models/resnet.hpp"

#include <torch/torch.h>

namespace bluefog::examples {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kStemChannels = 64;
constexpr std::int64_t kLargestSmallImage = 64;

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// Appends a convolution with its normalisation.
void add_unit(nn::Sequential& layers, std::int64_t in, std::int64_t out, std::int64_t kernel,
              std::int64_t stride) {
  layers->push_back(conv(in, out, kernel, stride));
  layers->push_back(nn::BatchNorm2d(out));
}

std::int64_t expansion(ResidualBlock kind) { return kind == ResidualBlock::Basic ? 1 : 4; }

nn::Sequential residual_path(ResidualBlock kind, std::int64_t in, std::int64_t width,
                             std::int64_t stride) {
  nn::Sequential path;
  if (kind == ResidualBlock::Basic) {
    add_unit(path, in, width, 3, stride);
    path->push_back(nn::ReLU(nn::ReLUOptions(true)));
    add_unit(path, width, width, 3, 1);
    return path;
  }
  add_unit(path, in, width, 1, 1);
  path->push_back(nn::ReLU(nn::ReLUOptions(true)));
  add_unit(path, width, width, 3, stride);
  path->push_back(nn::ReLU(nn::ReLUOptions(true)));
  add_unit(path, width, width * expansion(kind), 1, 1);
  return path;
}

/// relu(path(x) + shortcut(x)); the shortcut projects where the shape changes.
class Block final : public nn::Module {
 public:
  Block(ResidualBlock kind, std::int64_t in, std::int64_t width, std::int64_t stride) {
    const std::int64_t out = width * expansion(kind);
    path_ = register_module("path", residual_path(kind, in, width, stride));
    if (stride != 1 || in != out) {
      nn::Sequential shortcut;
      add_unit(shortcut, in, out, 1, stride);
      shortcut_ = register_module("shortcut", shortcut);
    }
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor kept = shortcut_.is_empty() ? x : shortcut_->forward(x);
    return path_->forward(x).add_(kept).relu_();
  }

 private:
  nn::Sequential path_{nullptr};
  nn::Sequential shortcut_{nullptr};
};

nn::Sequential make_stem(const ModelShape& shape) {
  const bool is_small = shape.image_size <= kLargestSmallImage;
  nn::Sequential stem;
  add_unit(stem, shape.in_channels, kStemChannels, is_small ? 3 : 7, is_small ? 1 : 2);
  stem->push_back(nn::ReLU(nn::ReLUOptions(true)));
  if (!is_small) {
    stem->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  }
  return stem;
}

class ResNet final : public ImageModel {
 public:
  ResNet(const ModelShape& shape, ResidualBlock kind, const std::array<int, 4>& blocks_per_stage) {
    stem_ = register_module("stem", make_stem(shape));
    nn::Sequential stages;
    std::int64_t in = kStemChannels;
    std::int64_t width = kStemChannels;
    for (std::size_t stage = 0; stage < blocks_per_stage.size(); ++stage) {
      for (int i = 0; i < blocks_per_stage[stage]; ++i) {
        const bool halves = stage > 0 && i == 0;
        stages->push_back(Block(kind, in, width, halves ? 2 : 1));
        in = width * expansion(kind);
      }
      width *= 2;
    }
    stages_ = register_module("stages", stages);
    output_ = register_module("output", nn::Linear(in, shape.num_classes));
    initialise();
  }

  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor features = stages_->forward(stem_->forward(images));
    return output_->forward(features.mean({2, 3}));
  }

 private:
  void initialise() {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* convolution = module->as<nn::Conv2d>()) {
        nn::init::kaiming_normal_(convolution->weight, 0.0, torch::kFanOut, torch::kReLU);
      }
    }
  }

  nn::Sequential stem_{nullptr};
  nn::Sequential stages_{nullptr};
  nn::Linear output_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_resnet(const ModelShape& shape, ResidualBlock block,
                                        const std::array<int, 4>& blocks_per_stage) {
  return std::make_shared<ResNet>(shape, block, blocks_per_stage);
}

}  // namespace bluefog::examples
