#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>

#include "pipeline/runtime/activation_cache.hpp"
#include "pipeline/runtime/layers.hpp"
#include "pipeline/runtime/stage_links.hpp"

namespace bluefog::pipeline {

/// The outputs of a model's first layers, which are frozen, from a cache where they are there.
class FrozenOutputs {
 public:
  /// Begins a generation of `cache`. @param depth the number of layers, at least 1.
  FrozenOutputs(ActivationCache& cache, Layers& layers, int depth);

  [[nodiscard]] int depth() const noexcept { return depth_; }
  /// Looks at the layers' parameters and buffers: what was stored with others counts no more.
  void begin_step();
  /// The outputs of rows of `input`. @param samples their numbers, by row.
  [[nodiscard]] at::Tensor of(const at::Tensor& input, std::span<const std::int64_t> samples);
  /// The rows that have come from the cache since the last call.
  [[nodiscard]] std::int64_t take_found_rows();

 private:
  [[nodiscard]] at::Tensor computed(const at::Tensor& input);
  [[nodiscard]] std::uint64_t stamp() const;
  void store(const at::Tensor& outputs, std::span<const std::int64_t> samples);

  ActivationCache& cache_;
  Layers& layers_;
  int depth_;
  std::uint64_t digest_ = 0;
  std::optional<RowForm> form_;
  std::int64_t found_rows_ = 0;
};

}  // namespace bluefog::pipeline
