#include "ops/neighbor_allreduce.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sum_contract.hpp"
#include "tests/support/values.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

using Plan = std::shared_ptr<const NeighborPlan>;

Plan share(NeighborPlan plan) { return std::make_shared<const NeighborPlan>(std::move(plan)); }

/// Result of one step by the contract.
/// @param sent_with d_j(i): the weight with which rank j sends to this rank.
Values expected_step(const NeighborPlan& plan, const std::vector<Values>& inputs,
                     const std::function<double(int)>& sent_with) {
  std::vector<Values> operands;
  std::vector<double> weights;
  const auto add = [&](int rank, double weight) {
    operands.push_back(inputs[static_cast<std::size_t>(rank)]);
    weights.push_back(weight);
  };
  bool has_own = false;
  for (const auto& [rank, weight] : plan.sources) {
    if (rank > plan.rank && !has_own) {
      add(plan.rank, plan.self_weight);
      has_own = true;
    }
    add(rank, weight * sent_with(rank));
  }
  if (!has_own) {
    add(plan.rank, plan.self_weight);
  }
  return expected_weighted_sum(operands, weights);
}

std::vector<Values> inputs_of_all(Dtype dtype, std::size_t count, int size) {
  std::vector<Values> inputs;
  for (int rank = 0; rank < size; ++rank) {
    inputs.push_back(small_integers(dtype, count, rank));
  }
  return inputs;
}

std::vector<MixingMatrix> graphs(int size) {
  std::vector<MixingMatrix> graphs{topology::exponential(size),
                                   topology::ring(size),
                                   topology::ring(size, topology::RingStyle::Left),
                                   topology::star(size),
                                   topology::fully_connected(size),
                                   topology::mesh_2d(size),
                                   MixingMatrix::identity(size)};
  if ((size & (size - 1)) == 0) {
    graphs.push_back(topology::hypercube(size));
  }
  return graphs;
}

TEST(NeighborAllreduce, StaticGraphsInPlaceAndOutOfPlace) {
  on_ranks([](Context& context) {
    int graph = 0;
    for (const MixingMatrix& w : graphs(context.size())) {
      const Plan plan = share(w.plan_for(context.rank()));
      for (const Dtype dtype : kFloatingDtypes) {
        auto inputs = inputs_of_all(dtype, 1000, context.size());
        Values& own = inputs[static_cast<std::size_t>(context.rank())];
        const Values expected = expected_step(*plan, inputs, [](int) { return 1.0; });
        const Values before = own;
        Values output(dtype, own.count());
        ops::neighbor_allreduce(context, ConstBufferView(own.view()), output.view(), plan);
        ASSERT_EQ(output, expected) << "graph " << graph << ", " << name_of(dtype);
        ASSERT_EQ(own, before);
        ops::neighbor_allreduce(context, own.view(), plan);
        ASSERT_EQ(own, expected) << "graph " << graph << ", " << name_of(dtype);
      }
      ++graph;
    }
  });
}

TEST(NeighborAllreduce, AgreesWithTheDenseMatrix) {
  on_ranks([](Context& context) {
    const MixingMatrix w = topology::exponential(context.size());
    const auto inputs = inputs_of_all(Dtype::Float64, 50, context.size());
    Values own = inputs[static_cast<std::size_t>(context.rank())];
    ops::neighbor_allreduce(context, own.view(), share(w.plan_for(context.rank())));
    for (std::size_t k = 0; k < own.count(); ++k) {
      double expected = 0;
      for (int j = 0; j < context.size(); ++j) {
        expected += w.weight(context.rank(), j) * inputs[static_cast<std::size_t>(j)][k];
      }
      // The dense sum adds in another order.
      EXPECT_NEAR(own[k], expected, 1e-14 * (1 + std::fabs(expected)));
    }
  });
}

TEST(NeighborAllreduce, SizesAroundChunks) {
  on_ranks([](Context& context) {
    const Plan plan = share(topology::ring(context.size()).plan_for(context.rank()));
    for (const std::size_t count :
         std::vector<std::size_t>{0, 1, 7, 18, 19, 4095, 4096, 4097, 32767, 32768, 32769,
                                  large(131072), large(131073), large(700'001)}) {
      auto inputs = inputs_of_all(Dtype::Float32, count, context.size());
      Values& own = inputs[static_cast<std::size_t>(context.rank())];
      const Values expected = expected_step(*plan, inputs, [](int) { return 1.0; });
      ops::neighbor_allreduce(context, own.view(), plan);
      ASSERT_EQ(own, expected) << count;
    }
  });
}

/// Rank 0 only sends, the last one only hears, with weights on both sides; others rest.
TEST(NeighborAllreduce, DynamicWithSendWeightsAndEmptyLists) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const int last = context.size() - 1;
    NeighborPlan plan = NeighborPlan::alone(context.rank(), context.size());
    if (context.rank() == 0) {
      plan.destinations = {{last, 0.5}};
    }
    if (context.rank() == last) {
      plan.self_weight = 0.25;
      plan.sources = {{0, 0.75}};
    }
    for (const auto check : {ops::PlanCheck::Trusted, ops::PlanCheck::Checked}) {
      for (const std::size_t count : {std::size_t{5}, std::size_t{100000}}) {
        auto inputs = inputs_of_all(Dtype::Float32, count, context.size());
        Values& own = inputs[static_cast<std::size_t>(context.rank())];
        const Values expected = expected_step(plan, inputs, [](int) { return 0.5; });
        ops::neighbor_allreduce(context, own.view(), share(plan), {.check = check});
        ASSERT_EQ(own, expected);
      }
    }
  });
}

TEST(NeighborAllreduce, OnePeerScheduleOfDifferentDegrees) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const int size = context.size();
    for (int step = 0; step < 12; ++step) {
      // Everybody sends to `step mod size`, which sends to nobody.
      const int center = step % size;
      NeighborPlan plan = NeighborPlan::alone(context.rank(), size);
      if (context.rank() == center) {
        plan.self_weight = 0.5;
        for (int rank = 0; rank < size; ++rank) {
          if (rank != center) {
            plan.sources.push_back({rank, 0.25});
          }
        }
      } else {
        plan.destinations = {{center, 1.0}};
      }
      auto inputs = inputs_of_all(Dtype::Float32, 9000, size);
      Values& own = inputs[static_cast<std::size_t>(context.rank())];
      const Values expected = expected_step(plan, inputs, [](int) { return 1.0; });
      ops::neighbor_allreduce(context, own.view(), share(plan));
      ASSERT_EQ(own, expected);
    }
  });
}

TEST(NeighborAllreduce, ManyInFlightWaitedForInReverseOrDropped) {
  on_ranks([](Context& context) {
    const Plan plan = share(topology::exponential(context.size()).plan_for(context.rank()));
    std::vector<std::vector<Values>> inputs;
    for (std::size_t i = 0; i < 30; ++i) {
      inputs.push_back(inputs_of_all(Dtype::Float32, 1 + large(i * 1500), context.size()));
    }
    const auto own = static_cast<std::size_t>(context.rank());
    std::vector<Values> expected;
    for (const auto& each : inputs) {
      expected.push_back(expected_step(*plan, each, [](int) { return 1.0; }));
    }
    std::vector<Work> works;
    for (auto& each : inputs) {
      Work work = ops::neighbor_allreduce_nonblocking(context, each[own].view(), plan);
      works.push_back(works.size() % 3 == 0 ? Work{} : work);  // a third is dropped
    }
    for (std::size_t i = works.size(); i-- > 0;) {
      works[i].wait();
    }
    ops::barrier(context);  // behind the dropped ones
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_EQ(inputs[i][own], expected[i]) << i;
    }
  });
}

TEST(NeighborAllreduce, OnWaitLeavesTheBufferAloneUntilThen) {
  on_ranks([](Context& context) {
    const Plan plan = share(topology::ring(context.size()).plan_for(context.rank()));
    const auto own = static_cast<std::size_t>(context.rank());
    for (const std::size_t count : {std::size_t{3}, large(200'000)}) {
      auto inputs = inputs_of_all(Dtype::Float32, count, context.size());
      const Values before = inputs[own];
      const Values expected = expected_step(*plan, inputs, [](int) { return 1.0; });
      const Work work = ops::neighbor_allreduce_nonblocking(
          context, inputs[own].view(), plan, {.completion = ops::Completion::OnWait});
      auto others = inputs_of_all(Dtype::Float32, large(70000), context.size());
      const Values others_expected = expected_step(*plan, others, [](int) { return 1.0; });
      ops::neighbor_allreduce(context, others[own].view(), plan);
      ops::barrier(context);
      EXPECT_EQ(others[own], others_expected);
      EXPECT_EQ(inputs[own], before);
      if (context.size() > 1) {
        EXPECT_FALSE(work.done());
      }
      work.wait();
      ASSERT_EQ(inputs[own], expected);
    }
  });
}

/// Three calls of this rank's value over a ring, which go on when somebody waits for them.
struct CallsOnWait {
  CallsOnWait(Context& context, const std::string& name) {
    const Plan plan = share(topology::ring(context.size()).plan_for(context.rank()));
    auto inputs = inputs_of_all(Dtype::Float32, 1000, context.size());
    expected = expected_step(*plan, inputs, [](int) { return 1.0; });
    values.assign(3, inputs[static_cast<std::size_t>(context.rank())]);
    for (Values& value : values) {
      works.push_back(ops::neighbor_allreduce_nonblocking(
          context, value.view(), plan, {.name = name, .completion = ops::Completion::OnWait}));
    }
  }
  void expect(std::size_t which) {
    works[which].wait();
    EXPECT_EQ(values[which], expected);
  }

  Values expected{Dtype::Float32, 0};
  std::vector<Values> values;
  std::vector<Work> works;
};

// Rank by rank in another order; messages of all of them come through one lane.
TEST(NeighborAllreduce, CallsOnWaitMayBeWaitedForInAnyOrder) {
  on_ranks([](Context& context) {
    CallsOnWait calls(context, "");
    for (int i = 0; i < 3; ++i) {
      calls.expect(static_cast<std::size_t>((2 * i + 2 + context.rank()) % 3));
    }
  });
}

// 0 → 1 ← 2, where rank 2 comes late: all that rank 0 sends ahead would lie in rank 1's memory.
TEST(NeighborAllreduce, CallsOnWaitOfOneNameDoNotRunAheadOfTheirReader) {
  on_ranks({.at_least = 3, .at_most = 3}, [](Context& context) {
    NeighborPlan part = NeighborPlan::alone(context.rank(), context.size());
    if (context.rank() == 1) {
      part.self_weight = 0.5;
      part.sources = {{.rank = 0, .weight = 0.25}, {.rank = 2, .weight = 0.25}};
    } else {
      part.destinations = {{.rank = 1}};
    }
    const Plan plan = share(part);
    std::vector<std::vector<float>> values(
        4, std::vector<float>(3000, static_cast<float>(context.rank() + 1)));
    if (context.rank() == 2) {
      meet(context);
    }
    std::atomic<bool> has_ended = false;
    std::jthread caller([&] {
      for (auto& value : values) {
        ops::neighbor_allreduce_nonblocking(
            context, {.data = value.data(), .count = std::ssize(value)}, plan,
            {.name = "x", .completion = ops::Completion::OnWait})
            .wait();
      }
      has_ended = true;
    });
    if (context.rank() != 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_FALSE(has_ended);
      meet(context);
    }
    caller.join();
    const std::vector<float> expected(
        3000, context.rank() == 1 ? 2.0F : static_cast<float>(context.rank() + 1));
    EXPECT_EQ(values, std::vector(values.size(), expected));
  });
}

TEST(NeighborAllreduce, CallsOnWaitOfOneNameHoldUpNobody) {
  on_ranks([](Context& context) {
    CallsOnWait calls(context, "x");
    ops::barrier(context);  // comes after the messages of all of them
    for (std::size_t i = 0; i < 3; ++i) {
      calls.expect(i);
    }
  });
}

TEST(NeighborAllreduce, ValuesOutOfRange) {
  on_ranks({.at_least = 2}, [](Context& context) {
    // 65504 is the largest float16: halves of two of them are still in range, the sum is not.
    for (const double weight : {0.5, 1.0}) {
      NeighborPlan plan = topology::ring(context.size()).plan_for(context.rank());
      plan.self_weight = weight;
      for (std::size_t i = 0; i < plan.sources.size(); ++i) {
        plan.sources[i].weight = i == 0 ? weight : 0.0;
      }
      Values own(Dtype::Float16, std::vector<double>(100, 65504.0));
      ops::neighbor_allreduce(context, own.view(), share(plan));
      EXPECT_EQ(own[99], weight == 0.5 ? 65504.0 : HUGE_VAL);
    }
  });
}

TEST(NeighborAllreduce, RefusesWrongArguments) {
  on_ranks([](Context& context) {
    std::vector<float> memory(8);
    const Plan plan = share(NeighborPlan::alone(context.rank(), context.size()));
    const auto call = [&](const ConstBufferView& in, const BufferView& out, const Plan& with) {
      return error_of<InvalidArgument>([&] { ops::neighbor_allreduce(context, in, out, with); });
    };
    const BufferView good{.data = memory.data(), .count = 4};
    EXPECT_THAT(call(good, good, nullptr), HasSubstr("expected a plan, found a null pointer"));
    EXPECT_THAT(call(good, good, share(NeighborPlan::alone(context.rank(), context.size() + 1))),
                HasSubstr("expected the plan of rank"));
    EXPECT_THAT(call(good, {.data = memory.data() + 2, .count = 4}, plan),
                HasSubstr("found them overlapping"));
    EXPECT_THAT(call(good, {.data = memory.data() + 4, .count = 3}, plan),
                HasSubstr("expected an output like the input, float32[4], found float32[3]"));
    EXPECT_THAT(call({nullptr, 4, Dtype::Float32}, good, plan), HasSubstr("found a null pointer"));
    EXPECT_THAT(call({memory.data(), -4, Dtype::Float32}, good, plan), HasSubstr("found -4"));
    const BufferView integers{.data = memory.data(), .count = 4, .dtype = Dtype::Int32};
    EXPECT_THAT(call(integers, integers, plan), HasSubstr("for an average, found int32"));
    NeighborPlan self = NeighborPlan::alone(context.rank(), context.size());
    self.sources = {{context.rank(), 1.0}};
    EXPECT_THAT(call(good, good, share(self)), HasSubstr("names the rank itself"));
  });
}

TEST(NeighborAllreduce, CheckedPlansThatDoNotFitAreAnErrorOnEveryRank) {
  on_ranks({.at_least = 2}, [](Context& context) {
    NeighborPlan plan = NeighborPlan::alone(context.rank(), context.size());
    if (context.rank() == 0) {
      plan.destinations = {{1, 1.0}};  // which rank 1 does not know
    }
    std::vector<float> value{1.0F};
    const BufferView buffer{.data = value.data(), .count = 1};
    for (const auto completion : {ops::Completion::AsItArrives, ops::Completion::OnWait}) {
      EXPECT_THAT(error_of<InvalidArgument>([&] {
                    ops::neighbor_allreduce(
                        context, buffer, share(plan),
                        {.check = ops::PlanCheck::Checked, .completion = completion});
                  }),
                  HasSubstr("rank 0 sends to rank 1, but rank 1 does not expect it"));
      EXPECT_EQ(value[0], 1.0F);
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
