#pragma once

#include <cstdint>

#include "examples/data/image_dataset.hpp"
#include "examples/models/image_model.hpp"

namespace bluefog::examples {

/// How a model does on images that it has not seen.
struct Evaluation {
  double accuracy = 0.0;  ///< share of right answers, 0 … 1
  double loss = 0.0;      ///< mean cross entropy
};

/// Judges `model` by the first `max_images` images of `dataset`, all of them if 0. Runs the model
/// in evaluation mode, without gradients, and leaves it in the mode it was in.
[[nodiscard]] Evaluation evaluate(ImageModel& model, const ImageDataset& dataset,
                                  std::int64_t max_images = 0);

}  // namespace bluefog::examples
