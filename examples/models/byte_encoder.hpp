#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

#include "examples/models/vision_transformer.hpp"

namespace bluefog::examples {

/// The token that stands in the place of a byte that is to be told.
inline constexpr std::int64_t kMaskToken = 256;

/// A small encoder in the manner of BERT over bytes, as a sequence of layers that each take one
/// tensor: an embedding of bytes, the mask and places, the layers of `vision_transformer`, and a
/// head that scores the 256 bytes at each place. N × tokens int64 in, N × tokens × 256 floats out.
/// @throws InvalidArgument for less than 1 token, and as `vision_transformer`.
/// Source: Devlin et al., arXiv 1810.04805.
[[nodiscard]] torch::nn::Sequential byte_encoder(std::int64_t tokens, const EncoderShape& encoder);

}  // namespace bluefog::examples
