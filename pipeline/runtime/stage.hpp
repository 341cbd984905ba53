#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>

#include "pipeline/pipeline.hpp"
#include "pipeline/runtime/frozen_outputs.hpp"
#include "pipeline/runtime/layers.hpp"

namespace bluefog::pipeline {

/// The work of a stage: its layers, and which of its passes there are.
struct StagePart {
  int begin = 0;                ///< the first layer
  int end = 0;                  ///< the layer behind the last one
  int frozen = 0;               ///< layers of the model before this one are frozen
  bool is_first = true;         ///< inputs are the batch's
  bool is_last = true;          ///< outputs go into the loss
  bool gives_gradient = false;  ///< backward passes give one for the stage before
};

/// The passes of one rank's stage: keeps of each micro-batch what its backward pass needs.
class Stage {
 public:
  /// @param layers, loss outlive this object.
  /// @param cached the outputs of its frozen layers, where they are kept; else null.
  Stage(Layers& layers, const Loss& loss, const StagePart& part, FrozenOutputs* cached);

  [[nodiscard]] const StagePart& part() const noexcept { return part_; }

  /// The output of `input`. @param keeps whether a backward pass follows.
  /// @param samples the rows' numbers, to look up what is cached of them; may be empty.
  [[nodiscard]] at::Tensor forward(int micro_batch, const at::Tensor& input, bool keeps,
                                   std::span<const std::int64_t> samples);
  /// On the last stage: the loss of an output, which counts as `weight` in the gradient.
  /// @return its value.
  double take_loss(int micro_batch, const at::Tensor& output, const at::Tensor& targets,
                   double weight, bool keeps);
  /// Adds to the parameters' gradients.
  /// @param gradient of the output; undefined on the last stage.
  /// @return that of the input, if the stage gives one.
  [[nodiscard]] at::Tensor backward(int micro_batch, const at::Tensor& gradient);

 private:
  struct Kept {
    at::Tensor input;
    at::Tensor output;
  };

  Layers& layers_;
  const Loss& loss_;
  StagePart part_;
  FrozenOutputs* cached_;
  std::map<int, Kept> kept_;
};

}  // namespace bluefog::pipeline
