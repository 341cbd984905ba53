#include "examples/models/byte_encoder.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <memory>

#include "bluefog_cpp/error.hpp"
#include "examples/models/encoder_layers.hpp"

namespace bluefog::examples {
namespace {

namespace nn = torch::nn;

class ByteEmbedding final : public nn::Module {
 public:
  ByteEmbedding(std::int64_t tokens, std::int64_t width)
      : nn::Module("ByteEmbedding"),
        values_(register_module("values", nn::Embedding(kMaskToken + 1, width))) {
    places_ = register_parameter("places", torch::randn({1, tokens, width}) * 0.02);
  }

  at::Tensor forward(const at::Tensor& tokens) { return values_->forward(tokens) + places_; }

 private:
  nn::Embedding values_;
  at::Tensor places_;
};

}  // namespace

nn::Sequential byte_encoder(std::int64_t tokens, const EncoderShape& encoder) {
  if (tokens < 1) {
    throw InvalidArgument(fmt::format("byte encoder: expected at least 1 token, found {}", tokens));
  }
  check_encoder(encoder);
  nn::Sequential model;
  model->push_back(std::make_shared<ByteEmbedding>(tokens, encoder.width));
  add_encoder(*model, encoder);
  add_head(*model, encoder.width, kMaskToken, HeadTokens::Each);
  return model;
}

}  // namespace bluefog::examples
