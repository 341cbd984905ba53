#include "pipeline/stage_actions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "pipeline/schedule_simulation.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using pipeline::Action;
using pipeline::ActionKind;
using pipeline::PipelineShape;
using pipeline::ScheduleKind;
using pipeline::SimulatedSchedule;
using pipeline::stage_actions;
using pipeline::StageTimes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ScheduleKind kKinds[] = {ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward};

std::vector<std::string> words(const std::vector<Action>& actions) {
  std::vector<std::string> found;
  for (const Action& action : actions) {
    found.push_back(describe(action));
  }
  return found;
}

std::vector<std::vector<Action>> all_stages(ScheduleKind kind, const PipelineShape& shape) {
  std::vector<std::vector<Action>> all;
  for (int stage = 0; stage < shape.stages; ++stage) {
    all.push_back(stage_actions(kind, shape, stage));
  }
  return all;
}

SimulatedSchedule simulated(ScheduleKind kind, const PipelineShape& shape, StageTimes times = {}) {
  const std::vector<StageTimes> of_all(static_cast<std::size_t>(shape.stages), times);
  return pipeline::simulate(all_stages(kind, shape), of_all);
}

TEST(StageActions, TwoStagesInFull) {
  const PipelineShape shape{.stages = 2, .micro_batches = 2};
  EXPECT_THAT(words(stage_actions(ScheduleKind::GPipe, shape, 0)),
              ElementsAre("forward 0", "send activation 0", "forward 1", "send activation 1",
                          "receive gradient 0", "backward 0", "receive gradient 1", "backward 1"));
  EXPECT_THAT(words(stage_actions(ScheduleKind::OneForwardOneBackward, shape, 1)),
              ElementsAre("receive activation 0", "forward 0", "backward 0", "send gradient 0",
                          "receive activation 1", "forward 1", "backward 1", "send gradient 1"));
}

TEST(StageActions, StagesBelowTheFirstTrainedOneHaveNoBackwardPass) {
  for (const ScheduleKind kind : kKinds) {
    const PipelineShape shape{.stages = 3, .micro_batches = 2, .first_trained = 1};
    EXPECT_THAT(words(stage_actions(kind, shape, 0)),
                ElementsAre("forward 0", "send activation 0", "forward 1", "send activation 1"));
    for (const Action& action : stage_actions(kind, shape, 1)) {
      EXPECT_NE(action.kind, ActionKind::SendGradient);
    }
    EXPECT_EQ(simulated(kind, shape).kept.at(0), 0) << "outputs that go on are not kept";
    const PipelineShape none{.stages = 3, .micro_batches = 2, .first_trained = 3};
    EXPECT_THAT(
        words(stage_actions(kind, none, 2)),
        ElementsAre("receive activation 0", "forward 0", "receive activation 1", "forward 1"));
    EXPECT_TRUE(stage_actions(kind, {.stages = 3, .micro_batches = 0}, 1).empty());
  }
}

/// Every schedule ends, whatever is frozen, with sums by rising micro-batch.
TEST(StageActions, EveryShapeComesToItsEnd) {
  for (const ScheduleKind kind : kKinds) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int count = 1; count <= 9; ++count) {
        for (int first = 0; first <= stages; ++first) {
          const PipelineShape shape{
              .stages = stages, .micro_batches = count, .first_trained = first};
          const SimulatedSchedule found = simulated(kind, shape);
          for (int stage = 0; stage < stages; ++stage) {
            std::vector<int> backwards;
            for (const auto& timed : found.stages[static_cast<std::size_t>(stage)]) {
              if (timed.action.kind == ActionKind::Backward) {
                backwards.push_back(timed.action.micro_batch);
              }
            }
            EXPECT_EQ(backwards.size(), static_cast<std::size_t>(stage >= first ? count : 0));
            EXPECT_TRUE(std::ranges::is_sorted(backwards));
          }
        }
      }
    }
  }
}

TEST(StageActions, TheBubbleOfEqualStagesIsTheKnownOne) {
  for (const ScheduleKind kind : kKinds) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (const int count : {1, 2, 5, 8, 16, 64}) {
        const double known = (stages - 1.0) / (count + stages - 1.0);
        const SimulatedSchedule found = simulated(kind, {.stages = stages, .micro_batches = count});
        EXPECT_NEAR(found.bubble, known, 1e-12) << stages << " stages, " << count;
        EXPECT_NEAR(found.makespan, 3.0 * (count + stages - 1), 1e-9);
      }
    }
  }
}

TEST(StageActions, OneForwardOneBackwardKeepsFewMicroBatches) {
  const PipelineShape shape{.stages = 4, .micro_batches = 16};
  EXPECT_THAT(simulated(ScheduleKind::GPipe, shape).kept, ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(simulated(ScheduleKind::OneForwardOneBackward, shape).kept, ElementsAre(4, 3, 2, 1));
}

TEST(StageActions, MessagesTakeTheirTime) {
  const std::vector<StageTimes> times(2, StageTimes{.forward = 1, .backward = 1});
  const auto found = pipeline::simulate(
      all_stages(ScheduleKind::GPipe, {.stages = 2, .micro_batches = 1}), times, 0.5);
  EXPECT_EQ(found.makespan, 5);
  EXPECT_NEAR(found.bubble, 1 - 4.0 / 10, 1e-12);
}

TEST(StageActions, ASimulationFindsWhatNeverEnds) {
  auto actions = all_stages(ScheduleKind::GPipe, {.stages = 2, .micro_batches = 2});
  const std::vector<StageTimes> times(2);
  auto late = actions;
  late[0].erase(late[0].begin() + 3);  // the second activation is never sent
  EXPECT_THAT(error_of<InvalidArgument>([&] { static_cast<void>(simulate(late, times)); }),
              HasSubstr("stage 0 waiting for ever in 'receive gradient 0'"));
  auto untaken = actions;
  untaken[0].erase(untaken[0].end() - 2, untaken[0].end());
  EXPECT_THAT(error_of<InvalidArgument>([&] { static_cast<void>(simulate(untaken, times)); }),
              HasSubstr("gradient 1 that stage 0 never takes"));
  EXPECT_THROW(static_cast<void>(simulate(actions, std::vector<StageTimes>(3))), InvalidArgument);
  EXPECT_THROW(static_cast<void>(simulate(actions, times, -1)), InvalidArgument);
}

TEST(StageActions, WhatCannotBeIsRefused) {
  EXPECT_THAT(error_of<InvalidArgument>(
                  [] { static_cast<void>(stage_actions(ScheduleKind::GPipe, {.stages = 2}, 2)); }),
              HasSubstr("expected a stage from 0 to 1, found 2"));
  for (const PipelineShape& shape : {PipelineShape{.stages = 0}, PipelineShape{.micro_batches = -1},
                                     PipelineShape{.first_trained = 2}}) {
    EXPECT_THROW(static_cast<void>(stage_actions(ScheduleKind::GPipe, shape, 0)), InvalidArgument);
  }
  for (const ScheduleKind kind : kKinds) {
    EXPECT_EQ(pipeline::schedule_named(name_of(kind)), kind);
  }
  EXPECT_THAT(error_of<InvalidArgument>([] { static_cast<void>(pipeline::schedule_named("2b")); }),
              HasSubstr("expected gpipe or 1f1b, found '2b'"));
}

}  // namespace
}  // namespace bluefog::testing
