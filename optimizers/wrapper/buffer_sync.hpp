#pragma once

#include <cstddef>
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

  /// The calls of `after_round`.
  [[nodiscard]] std::size_t calls_due() const;
  /// Applies the policy at the end of a communication round. Collective if it communicates.
  void after_round();
  /// Applies the policy in `finish`. Collective if it communicates.
  void at_finish();

  [[nodiscard]] const NamedTensors& buffers() const noexcept { return buffers_; }

 private:
  Context& context_;
  NamedTensors buffers_;
  BufferPolicy policy_;
};

}  // namespace bluefog::optimizers
