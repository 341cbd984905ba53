#include "pipeline/runtime/stage_passes.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace bluefog::pipeline {

StagePasses::StagePasses(Stage& stage, StageLinks& links, const PipelineBatch& batch,
                         std::vector<std::int64_t> rows, std::int64_t divisor)
    : stage_(stage), links_(links), batch_(batch), rows_(std::move(rows)), divisor_(divisor) {}

void StagePasses::run(const std::vector<Action>& actions, StepClock& clock,
                      const std::function<void()>& on_last_backward) {
  const auto last =
      std::ranges::find(actions.rbegin(), actions.rend(), ActionKind::Backward, &Action::kind);
  keeps_ = last != actions.rend();
  for (const Action& action : actions) {
    if (keeps_ && &action == &*last) {
      on_last_backward();
    }
    run(action, clock);
  }
}

void StagePasses::finish(StepClock& clock) {
  const auto part = clock.part(&StepTimes::waiting, "WAIT UNTIL SENT");
  links_.finish();
}

void StagePasses::run(const Action& action, StepClock& clock) {
  const int own = action.micro_batch;
  switch (action.kind) {
    case ActionKind::ReceiveActivation: {
      const auto part = clock.part(&StepTimes::waiting, "WAIT FOR ACTIVATION", own);
      arrived_ = links_.receive_activation(rows_of(own));
      break;
    }
    case ActionKind::Forward: {
      const auto part = clock.part(&StepTimes::forward, "FORWARD", own);
      forward(own);
      break;
    }
    case ActionKind::SendActivation:
      links_.send_activation(std::exchange(made_, {}), rows_of(own));
      break;
    case ActionKind::ReceiveGradient: {
      const auto part = clock.part(&StepTimes::waiting, "WAIT FOR GRADIENT", own);
      arrived_ = links_.receive_gradient(rows_of(own));
      break;
    }
    case ActionKind::Backward: {
      const auto part = clock.part(&StepTimes::backward, "BACKWARD", own);
      made_ = stage_.backward(own, std::exchange(arrived_, {}));
      break;
    }
    case ActionKind::SendGradient:
      links_.send_gradient(std::exchange(made_, {}));
      break;
  }
}

void StagePasses::forward(int micro_batch) {
  const at::Tensor input =
      stage_.part().is_first ? cut(batch_.inputs, micro_batch) : std::exchange(arrived_, {});
  made_ = stage_.forward(micro_batch, input, keeps_, samples_of(micro_batch));
  if (!stage_.part().is_last) {
    return;
  }
  const at::Tensor output = std::exchange(made_, {});
  if (batch_.targets.defined()) {
    const auto rows = static_cast<double>(rows_of(micro_batch));
    weighted_loss_ += rows * stage_.take_loss(micro_batch, output, cut(batch_.targets, micro_batch),
                                              rows / static_cast<double>(divisor_), keeps_);
  }
  if (!keeps_) {
    outputs_.push_back(output);
  }
}

std::int64_t StagePasses::first_row(int micro_batch) const {
  return std::accumulate(rows_.begin(), rows_.begin() + micro_batch, std::int64_t{0});
}

at::Tensor StagePasses::cut(const at::Tensor& whole, int micro_batch) const {
  return whole.narrow(0, first_row(micro_batch), rows_of(micro_batch));
}

std::span<const std::int64_t> StagePasses::samples_of(int micro_batch) const {
  if (batch_.samples.empty()) {
    return {};
  }
  return std::span(batch_.samples)
      .subspan(static_cast<std::size_t>(first_row(micro_batch)),
               static_cast<std::size_t>(rows_of(micro_batch)));
}

std::int64_t StagePasses::rows_of(int micro_batch) const {
  return rows_.at(static_cast<std::size_t>(micro_batch));
}

}  // namespace bluefog::pipeline
