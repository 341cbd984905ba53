#include "pipeline/stage_actions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {
namespace {

struct Named {
  ScheduleKind kind;
  std::string_view name;
};
constexpr std::array kNames{Named{ScheduleKind::GPipe, "gpipe"},
                            Named{ScheduleKind::OneForwardOneBackward, "1f1b"}};

void check(const PipelineShape& shape, int stage) {
  if (shape.stages < 1 || shape.micro_batches < 0 || shape.first_trained < 0 ||
      shape.first_trained > shape.stages) {
    throw InvalidArgument(
        fmt::format("pipeline schedule: expected at least 1 stage, 0 micro-batches or more and a "
                    "first trained stage from 0 to the number of stages, found {}, {} and {}",
                    shape.stages, shape.micro_batches, shape.first_trained));
  }
  if (stage < 0 || stage >= shape.stages) {
    throw InvalidArgument(fmt::format("pipeline schedule: expected a stage from 0 to {}, found {}",
                                      shape.stages - 1, stage));
  }
}

/// The actions of one stage, as they are written down.
class Actions {
 public:
  Actions(const PipelineShape& shape, int stage)
      : is_first_(stage == 0),
        is_last_(stage == shape.stages - 1),
        sends_gradients_(stage > shape.first_trained) {}

  void forward(int micro_batch) {
    add(!is_first_, ActionKind::ReceiveActivation, micro_batch);
    add(true, ActionKind::Forward, micro_batch);
    add(!is_last_, ActionKind::SendActivation, micro_batch);
  }
  void backward(int micro_batch) {
    add(!is_last_, ActionKind::ReceiveGradient, micro_batch);
    add(true, ActionKind::Backward, micro_batch);
    add(sends_gradients_, ActionKind::SendGradient, micro_batch);
  }
  [[nodiscard]] std::vector<Action> take() { return std::move(actions_); }

 private:
  void add(bool is_done, ActionKind kind, int micro_batch) {
    if (is_done) {
      actions_.push_back({.kind = kind, .micro_batch = micro_batch});
    }
  }

  bool is_first_;
  bool is_last_;
  bool sends_gradients_;
  std::vector<Action> actions_;
};

}  // namespace

std::string_view name_of(ScheduleKind kind) noexcept {
  const auto* const found = std::ranges::find(kNames, kind, &Named::kind);
  return found == kNames.end() ? "unknown" : found->name;
}

ScheduleKind schedule_named(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name, &Named::name);
  if (found == kNames.end()) {
    throw InvalidArgument(
        fmt::format("pipeline schedule: expected gpipe or 1f1b, found '{}'", name));
  }
  return found->kind;
}

std::string describe(const Action& action) {
  constexpr std::array<std::string_view, 6> kWords{"receive activation", "forward",
                                                   "send activation",    "receive gradient",
                                                   "backward",           "send gradient"};
  return fmt::format("{} {}", kWords.at(static_cast<std::size_t>(action.kind)), action.micro_batch);
}

std::vector<Action> stage_actions(ScheduleKind kind, const PipelineShape& shape, int stage) {
  check(shape, stage);
  Actions actions(shape, stage);
  const int count = shape.micro_batches;
  const bool is_trained = stage >= shape.first_trained;
  // The stages behind have to be filled before the first gradient can come.
  const int ahead = kind == ScheduleKind::GPipe || !is_trained
                        ? count
                        : std::min(count, shape.stages - 1 - stage);
  for (int i = 0; i < ahead; ++i) {
    actions.forward(i);
  }
  for (int i = 0; i < count && is_trained; ++i) {
    if (i + ahead < count) {
      actions.forward(i + ahead);
    }
    actions.backward(i);
  }
  return actions.take();
}

}  // namespace bluefog::pipeline
