#pragma once

#include <array>
#include <memory>

#include "examples/models/image_model.hpp"

namespace bluefog::examples {

enum class ResidualBlock {
  Basic,       ///< two 3×3 convolutions
  Bottleneck,  ///< 1×1, 3×3, 1×1 with four times the channels at its end
};

/// A residual network of four stages with 64, 128, 256 and 512 channels.
///
/// Parameters: ResNet-18 has 11,173,962 for 32 × 32 colour images in 10 classes (11,689,512 with
/// the large stem and 1,000 classes), ResNet-50 has 23,520,842 (25,557,032).
/// Source: He, Zhang, Ren, Sun 2015, arXiv 1512.03385; strides of the bottleneck as in torchvision.
[[nodiscard]] std::shared_ptr<ImageModel> make_resnet(const ModelShape& shape, ResidualBlock block,
                                                      const std::array<int, 4>& blocks_per_stage);

}  // namespace bluefog::examples
