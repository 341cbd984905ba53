#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

#include "examples/models/vision_transformer.hpp"

namespace bluefog::examples {

/// @throws InvalidArgument as `vision_transformer`, for the encoder's sizes.
void check_encoder(const EncoderShape& shape);

/// Adds two sublayers for each of the encoder's layers. Tokens are N × count × width.
void add_encoder(torch::nn::SequentialImpl& model, const EncoderShape& shape);

/// The tokens that a head looks at.
enum class HeadTokens : std::uint8_t { Mean, Each };

/// Adds a head: a layer normalisation, and dense scores of the mean token or of each one.
void add_head(torch::nn::SequentialImpl& model, std::int64_t width, std::int64_t outputs,
              HeadTokens tokens);

}  // namespace bluefog::examples
