#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace bluefog::examples {

/// The values that a byte has.
inline constexpr std::int64_t kBytes = 256;

/// The size of a model.
struct LanguageModelSize {
  std::int64_t width = 64;
  std::int64_t layers = 2;
  std::int64_t heads = 4;    ///< they divide the width
  std::int64_t length = 64;  ///< the longest window
};

/// Attention to what came before, then two dense layers, each beside a way around it.
class LanguageBlock : public torch::nn::Module {
 public:
  LanguageBlock(std::int64_t width, std::int64_t heads);
  /// [batch, length, width] to the same.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x);

 private:
  [[nodiscard]] at::Tensor attended(const at::Tensor& x);

  std::int64_t heads_;
  torch::nn::LayerNorm before_attention_;
  torch::nn::LayerNorm before_dense_;
  torch::nn::Linear attention_;
  torch::nn::Linear projection_;
  torch::nn::Linear widening_;
  torch::nn::Linear narrowing_;
};

/// A decoder-only transformer: scores of each byte that may come next, at each place of windows;
/// bytes have the same vectors as inputs and as outputs.
class LanguageModel : public torch::nn::Module {
 public:
  explicit LanguageModel(const LanguageModelSize& size);
  /// int64 [batch, length] to [batch, length, kBytes].
  [[nodiscard]] at::Tensor forward(const at::Tensor& windows);

 private:
  torch::nn::Embedding bytes_;
  torch::nn::Embedding places_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
};

}  // namespace bluefog::examples
