#pragma once

#include <vector>

#include "bluefog_cpp/context.hpp"
#include "optimizers/buffer_policy.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// Applies a `BufferPolicy` to a model's buffers.
class BufferSync {
 public:
  /// @param context outlives this object.
  BufferSync(Context& context, NamedTensors buffers, BufferPolicy policy);

  /// What the policy says about the end of a communication round. Collective where it communicates.
  void after_round();
  /// What the policy says about `finish`. Collective where it communicates.
  void at_finish();

  [[nodiscard]] const NamedTensors& buffers() const noexcept { return buffers_; }

 private:
  Context& context_;
  NamedTensors buffers_;
  BufferPolicy policy_;
};

}  // namespace bluefog::optimizers
