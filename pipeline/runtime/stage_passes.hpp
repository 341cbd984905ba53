#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "pipeline/pipeline.hpp"
#include "pipeline/runtime/stage.hpp"
#include "pipeline/runtime/stage_links.hpp"
#include "pipeline/runtime/step_clock.hpp"

namespace bluefog::pipeline {

/// One batch on its way through a rank's stage: does the actions of a schedule.
class StagePasses {
 public:
  /// @param rows of each micro-batch. @param divisor the rows by which losses count.
  StagePasses(Stage& stage, StageLinks& links, const PipelineBatch& batch,
              std::vector<std::int64_t> rows, std::int64_t divisor);

  /// Does the actions, in their order. @param on_last_backward called before the last backward pass,
  ///   where there is one.
  void run(
      const std::vector<Action>& actions, StepClock& clock,
      const std::function<void()>& on_last_backward = [] {});
  /// Waits for what they have sent.
  void finish(StepClock& clock);
  /// The sum of losses, each by its rows; on the last stage.
  [[nodiscard]] double weighted_loss() const noexcept { return weighted_loss_; }
  /// The outputs of evaluations; on the last stage.
  [[nodiscard]] const std::vector<at::Tensor>& outputs() const noexcept { return outputs_; }

 private:
  void run(const Action& action, StepClock& clock);
  void forward(int micro_batch);
  [[nodiscard]] at::Tensor cut(const at::Tensor& whole, int micro_batch) const;
  [[nodiscard]] std::span<const std::int64_t> samples_of(int micro_batch) const;
  [[nodiscard]] std::int64_t first_row(int micro_batch) const;
  [[nodiscard]] std::int64_t rows_of(int micro_batch) const;

  Stage& stage_;
  StageLinks& links_;
  const PipelineBatch& batch_;
  std::vector<std::int64_t> rows_;
  std::int64_t divisor_;
  bool keeps_ = false;
  at::Tensor arrived_;
  at::Tensor made_;
  double weighted_loss_ = 0;
  std::vector<at::Tensor> outputs_;
};

}  // namespace bluefog::pipeline
