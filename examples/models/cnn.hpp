#pragma once

#include <memory>

#include "examples/models/image_model.hpp"

namespace bluefog::examples {

/// Two convolutions and two dense layers; 421,642 parameters for 28 × 28 grey images, 10 classes.
[[nodiscard]] std::shared_ptr<ImageModel> make_cnn(const ModelShape& shape);

}  // namespace bluefog::examples
