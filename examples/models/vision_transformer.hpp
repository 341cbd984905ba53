#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

namespace bluefog::examples {

/// The sizes of a transformer's encoder.
struct EncoderShape {
  std::int64_t layers = 6;
  std::int64_t width = 64;
  std::int64_t heads = 4;
  /// Microseconds a row that each half of a layer sleeps in a forward pass, and twice that in a
  /// backward pass: stands in for compute where ranks share few cores.
  std::int64_t pause_us = 0;
};

/// The images of a vision transformer.
struct PatchShape {
  std::int64_t channels = 1;
  std::int64_t side = 28;  ///< pixels
  std::int64_t patch = 7;  ///< pixels of a patch's side
  std::int64_t classes = 10;
};

/// A small vision transformer as a sequence of layers that each take one tensor: an embedding of
/// patches with their places, two for each of the encoder's layers (attention, and two dense layers,
/// each behind a layer normalisation and with its residual), and a head on the mean token.
/// N × channels × side × side floats in, N × classes logits out. Parameters are drawn from torch's
/// default generator.
/// @throws InvalidArgument for sizes below 1, heads that do not divide the width, patches that do
///   not divide the side, and a negative pause.
/// Source: Dosovitskiy et al., arXiv 2010.11929.
[[nodiscard]] torch::nn::Sequential vision_transformer(const PatchShape& images,
                                                       const EncoderShape& encoder);

}  // namespace bluefog::examples
