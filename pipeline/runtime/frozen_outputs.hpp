#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "pipeline/runtime/activation_cache.hpp"
#include "pipeline/runtime/layers.hpp"
#include "pipeline/runtime/stage_links.hpp"

namespace bluefog::pipeline {

/// The outputs of a model's first layers, which are frozen, from a cache where they are there.
///
/// Rows that were stored at an earlier depth spare the layers before it: they are computed on from
/// there, and stored at this depth.
class FrozenOutputs {
 public:
  /// @param depth the number of layers, at least 1. @param older_depth that of the cache's earlier
  ///   generation; 0: there was none.
  FrozenOutputs(ActivationCache& cache, Layers& layers, int depth, int older_depth);

  [[nodiscard]] int depth() const noexcept { return depth_; }
  /// Looks at the layers' parameters and buffers: what was stored with others counts no more.
  void begin_step();
  /// The outputs of rows of `input`. @param samples their numbers, by row.
  [[nodiscard]] at::Tensor of(const at::Tensor& input, std::span<const std::int64_t> samples);
  /// The rows that have come from the cache since the last call.
  [[nodiscard]] std::int64_t take_found_rows() { return std::exchange(found_rows_, 0); }
  /// The rows that were computed on from an earlier depth since the last call.
  [[nodiscard]] std::int64_t take_resumed_rows() { return std::exchange(resumed_rows_, 0); }

 private:
  /// Rows of a batch, and their samples.
  struct Rows {
    std::vector<std::int64_t> places;
    std::vector<std::int64_t> samples;
    void add(std::int64_t place, std::int64_t sample);
  };
  /// The outputs of layers from `begin` on. @throws InvalidArgument for another number of rows.
  [[nodiscard]] at::Tensor computed(const at::Tensor& input, int begin, int end);
  [[nodiscard]] at::Tensor first_outputs(const at::Tensor& input,
                                         std::span<const std::int64_t> samples);
  /// Takes of `missing` the rows that an earlier depth has, and puts their outputs into `outputs`.
  void resume(at::Tensor& outputs, Rows& missing);
  void store(const at::Tensor& outputs, std::span<const std::int64_t> samples);

  ActivationCache& cache_;
  Layers& layers_;
  int depth_;
  int older_depth_;
  std::uint64_t digest_ = 0;        ///< of the layers up to `depth_`
  std::uint64_t older_digest_ = 0;  ///< of those up to `older_depth_`
  std::optional<RowForm> form_;
  std::optional<RowForm> older_form_;  ///< of outputs at the earlier depth, where rows are as large
  std::int64_t found_rows_ = 0;
  std::int64_t resumed_rows_ = 0;
};

}  // namespace bluefog::pipeline
