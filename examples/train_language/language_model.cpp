#include "examples/train_language/language_model.hpp"

namespace bluefog::examples {
namespace {

constexpr double kDeviation = 0.02;
constexpr std::int64_t kWider = 4;

torch::nn::LayerNorm norm_of(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

LanguageBlock::LanguageBlock(std::int64_t width, std::int64_t heads)
    : heads_(heads),
      before_attention_(register_module("before_attention", norm_of(width))),
      before_dense_(register_module("before_dense", norm_of(width))),
      attention_(register_module("attention", torch::nn::Linear(width, 3 * width))),
      projection_(register_module("projection", torch::nn::Linear(width, width))),
      widening_(register_module("widening", torch::nn::Linear(width, kWider * width))),
      narrowing_(register_module("narrowing", torch::nn::Linear(kWider * width, width))) {}

at::Tensor LanguageBlock::attended(const at::Tensor& x) {
  const auto parts = attention_(before_attention_(x))
                         .view({x.size(0), x.size(1), 3, heads_, -1})
                         .permute({2, 0, 3, 1, 4});
  const auto seen = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{},
                                                     /*dropout_p=*/0.0, /*is_causal=*/true);
  return projection_(seen.transpose(1, 2).reshape(x.sizes()));
}

at::Tensor LanguageBlock::forward(const at::Tensor& x) {
  const at::Tensor y = x + attended(x);
  return y + narrowing_(torch::gelu(widening_(before_dense_(y))));
}

LanguageModel::LanguageModel(const LanguageModelSize& size)
    : bytes_(register_module("bytes", torch::nn::Embedding(kBytes, size.width))),
      places_(register_module("places", torch::nn::Embedding(size.length, size.width))),
      blocks_(register_module("blocks", torch::nn::ModuleList())),
      norm_(register_module("norm", norm_of(size.width))) {
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    blocks_->push_back(LanguageBlock(size.width, size.heads));
  }
  torch::nn::init::normal_(bytes_->weight, 0.0, kDeviation);
  torch::nn::init::normal_(places_->weight, 0.0, kDeviation);
}

at::Tensor LanguageModel::forward(const at::Tensor& windows) {
  at::Tensor x = bytes_(windows) + places_->weight.slice(0, 0, windows.size(1));
  for (const auto& block : *blocks_) {
    x = block->as<LanguageBlock>()->forward(x);
  }
  return at::linear(norm_(x), bytes_->weight);
}

}  // namespace bluefog::examples
