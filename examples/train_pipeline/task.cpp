#include "examples/train_pipeline/task.hpp"

namespace bluefog::examples {

EncoderShape encoder_of(const PipelineConfiguration& configuration) {
  return {.layers = configuration.layers,
          .width = configuration.width,
          .heads = configuration.heads,
          .pause_us = configuration.pause_us};
}

std::unique_ptr<PipelineTask> make_task(const PipelineRunOptions& options,
                                        const PipelineConfiguration& configuration) {
  return configuration.model == "vit" ? make_image_task(options, configuration)
                                      : make_text_task(options, configuration);
}

}  // namespace bluefog::examples
