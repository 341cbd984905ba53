#include "examples/models/encoder_layers.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

namespace nn = torch::nn;

/// The identity, which sleeps for each row, twice as long in the backward pass.
class Pause : public torch::autograd::Function<Pause> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values,
                            std::int64_t row_us) {
    context->saved_data["pause_us"] = 2 * row_us * values.size(0);
    std::this_thread::sleep_for(std::chrono::microseconds(row_us * values.size(0)));
    return values.clone();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    std::this_thread::sleep_for(std::chrono::microseconds(context->saved_data["pause_us"].toInt()));
    return {gradients[0], at::Tensor()};
  }
};

at::Tensor after_pause(const at::Tensor& values, std::int64_t row_us) {
  return row_us > 0 ? Pause::apply(values, row_us) : values;
}

nn::LayerNorm norm_of(std::int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

class Attention final : public nn::Module {
 public:
  explicit Attention(const EncoderShape& shape)
      : nn::Module("Attention"),
        heads_(shape.heads),
        pause_us_(shape.pause_us),
        norm_(register_module("norm", norm_of(shape.width))),
        inputs_(register_module("inputs", nn::Linear(shape.width, 3 * shape.width))),
        output_(register_module("output", nn::Linear(shape.width, shape.width))) {}

  at::Tensor forward(const at::Tensor& tokens) {
    const std::int64_t rows = tokens.size(0);
    const std::int64_t count = tokens.size(1);
    const at::Tensor parts = inputs_->forward(norm_->forward(tokens))
                                 .view({rows, count, 3, heads_, -1})
                                 .permute({2, 0, 3, 1, 4});
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return after_pause(tokens + output_->forward(mixed.transpose(1, 2).reshape({rows, count, -1})),
                       pause_us_);
  }

 private:
  std::int64_t heads_;
  std::int64_t pause_us_;
  nn::LayerNorm norm_;
  nn::Linear inputs_;
  nn::Linear output_;
};

class FeedForward final : public nn::Module {
 public:
  explicit FeedForward(const EncoderShape& shape)
      : nn::Module("FeedForward"),
        pause_us_(shape.pause_us),
        layers_(register_module(
            "layers", nn::Sequential(norm_of(shape.width), nn::Linear(shape.width, 4 * shape.width),
                                     nn::GELU(), nn::Linear(4 * shape.width, shape.width)))) {}

  at::Tensor forward(const at::Tensor& tokens) {
    return after_pause(tokens + layers_->forward(tokens), pause_us_);
  }

 private:
  std::int64_t pause_us_;
  nn::Sequential layers_;
};

class Head final : public nn::Module {
 public:
  Head(std::int64_t width, std::int64_t outputs, HeadTokens tokens)
      : nn::Module("Head"),
        tokens_(tokens),
        norm_(register_module("norm", norm_of(width))),
        scores_(register_module("scores", nn::Linear(width, outputs))) {}

  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor normed = norm_->forward(tokens);
    return scores_->forward(tokens_ == HeadTokens::Mean ? normed.mean(1) : normed);
  }

 private:
  HeadTokens tokens_;
  nn::LayerNorm norm_;
  nn::Linear scores_;
};

}  // namespace

void check_encoder(const EncoderShape& shape) {
  if (std::min({shape.layers, shape.width, shape.heads}) < 1 || shape.width % shape.heads != 0) {
    throw InvalidArgument(fmt::format(
        "encoder: expected at least 1 layer, and heads that divide the width, found {} layers, a "
        "width of {} and {} heads",
        shape.layers, shape.width, shape.heads));
  }
  if (shape.pause_us < 0) {
    throw InvalidArgument(
        fmt::format("encoder: expected a pause of 0 us or more, found {}", shape.pause_us));
  }
}

void add_encoder(nn::SequentialImpl& model, const EncoderShape& shape) {
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    model.push_back(std::make_shared<Attention>(shape));
    model.push_back(std::make_shared<FeedForward>(shape));
  }
}

void add_head(nn::SequentialImpl& model, std::int64_t width, std::int64_t outputs,
              HeadTokens tokens) {
  model.push_back(std::make_shared<Head>(width, outputs, tokens));
}

}  // namespace bluefog::examples
