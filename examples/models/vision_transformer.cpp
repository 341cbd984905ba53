#include "examples/models/vision_transformer.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>

#include "bluefog_cpp/error.hpp"
#include "examples/models/encoder_layers.hpp"

namespace bluefog::examples {
namespace {

namespace nn = torch::nn;

class PatchEmbedding final : public nn::Module {
 public:
  PatchEmbedding(const PatchShape& images, std::int64_t width) : nn::Module("PatchEmbedding") {
    cut_ = register_module(
        "cut",
        nn::Conv2d(nn::Conv2dOptions(images.channels, width, images.patch).stride(images.patch)));
    const std::int64_t across = images.side / images.patch;
    places_ = register_parameter("places", torch::randn({1, across * across, width}) * 0.02);
  }

  at::Tensor forward(const at::Tensor& images) {
    return cut_->forward(images).flatten(2).transpose(1, 2) + places_;
  }

 private:
  nn::Conv2d cut_{nullptr};
  at::Tensor places_;
};

void check(const PatchShape& images) {
  if (std::min({images.channels, images.side, images.patch, images.classes}) < 1 ||
      images.side % images.patch != 0) {
    throw InvalidArgument(fmt::format(
        "vision transformer: expected at least 1 channel and class, and patches that divide the "
        "images' side, found {} channels, {} classes, patches of {} pixels and a side of {}",
        images.channels, images.classes, images.patch, images.side));
  }
}

}  // namespace

nn::Sequential vision_transformer(const PatchShape& images, const EncoderShape& encoder) {
  check(images);
  check_encoder(encoder);
  nn::Sequential model;
  model->push_back(std::make_shared<PatchEmbedding>(images, encoder.width));
  add_encoder(*model, encoder);
  add_head(*model, encoder.width, images.classes, HeadTokens::Mean);
  return model;
}

}  // namespace bluefog::examples
