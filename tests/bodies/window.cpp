// The effects of window calls on tensors, buffers and weights.
#include "ops/window.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/bodies/window_plans.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

using ops::Window;

std::vector<double> combined(const NeighborPlan& plan, double self_weight, const Values& own,
                             const std::function<double(int source, std::size_t k)>& buffer) {
  std::vector<double> result(own.count());
  for (std::size_t k = 0; k < own.count(); ++k) {
    result[k] = self_weight * own[k];
    for (const WeightedRank& source : plan.sources) {
      result[k] += source.weight * buffer(source.rank, k);
    }
  }
  return result;
}

TEST(Window, PutThenUpdateIsANeighbourAverage) {
  on_ranks([](Context& context) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{5000}}) {
        NeighborPlan plan = full_plan(context);
        plan.self_weight = 0.5;
        for (WeightedRank& source : plan.sources) {
          source.weight = 0.25;
        }
        Values value = small_integers(dtype, count, context.rank());
        const Values before = value;
        const auto window = Window::create(context, value.view(), plan, {.name = "w"});
        window->put(value.view());
        ops::barrier(context);
        for (const auto& [source, version] : window->versions()) {
          EXPECT_EQ(version, 1) << source;
        }
        window->update();
        for (const auto& [source, version] : window->versions()) {
          EXPECT_EQ(version, 0) << source;
        }
        const auto theirs = [&](int source, std::size_t k) {
          return small_integers(dtype, count, source)[k];
        };
        if (count <= 3) {
          EXPECT_EQ(value, Values(dtype, combined(plan, 0.5, before, theirs)));
        }
        window->free();
      }
    }
  });
}

TEST(Window, BuffersHoldTheOwnValueOrZerosAtFirst) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = ring_plan(context);
    std::vector<float> value{static_cast<float>(context.rank() + 1)};
    const BufferView view{.data = value.data(), .count = 1};
    const auto own = Window::create(context, view, plan, {.name = "own"});
    own->update_then_collect();
    EXPECT_EQ(value[0],
              static_cast<float>(context.rank() + 1) * static_cast<float>(plan.sources.size() + 1));
    const auto zeros =
        Window::create(context, view, plan, {.name = "zeros", .fill = ops::WindowFill::Zeros});
    const float before = value[0];
    zeros->update_then_collect();
    EXPECT_EQ(value[0], before);
    own->free();
    zeros->free();
  });
}

TEST(Window, GetFetchesTheSourcesTensors) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = full_plan(context);
    std::vector<double> value(2000, context.rank());
    const BufferView view{.data = value.data(), .count = 2000, .dtype = Dtype::Float64};
    const auto window = Window::create(context, view, plan);
    ops::barrier(context);
    const int source = plan.sources.back().rank;
    window->get({.sources = {{{.rank = source, .weight = 2.0}}}});
    ops::barrier(context);
    std::vector<double> result(2000);
    window->update(
        {.weights = {{.self_weight = 0.0, .sources = {{.rank = source}}}},
         .output = BufferView{.data = result.data(), .count = 2000, .dtype = Dtype::Float64}});
    EXPECT_EQ(result, std::vector<double>(2000, 2.0 * source));
    EXPECT_EQ(value[0], context.rank());
    ops::barrier(context);
    window->free();
  });
}

TEST(Window, PutScalesTheTensorAfterwardsAndToSomeOnly) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = full_plan(context);
    std::vector<float> value{8.0F};
    const BufferView view{.data = value.data(), .count = 1};
    const auto window = Window::create(context, view, plan, {.fill = ops::WindowFill::Zeros});
    const int to = (context.rank() + 1) % context.size();
    window->put(view, {.self_weight = 0.25, .destinations = {{{.rank = to, .weight = 0.75}}}});
    EXPECT_EQ(value[0], 2.0F);
    ops::barrier(context);
    window->update_then_collect();
    EXPECT_EQ(value[0], 8.0F);
    window->free();
  });
}

// The sum of all tensors and buffers, and of the associated weights, is conserved to the last bit:
// all values are whole numbers of a small unit.
TEST(Window, NothingThatIsAccumulatedIsLost) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = full_plan(context);
    std::vector<double> value(64, 1024.0 * (context.rank() + 1));
    const BufferView view{.data = value.data(), .count = 64, .dtype = Dtype::Float64};
    const auto window = Window::create(context, view, plan,
                                       {.name = "sum",
                                        .fill = ops::WindowFill::Zeros,
                                        .associated_weight = ops::AssociatedWeight::On});
    const double before = total(context, value[7]);
    std::minstd_rand random(static_cast<unsigned>(context.rank()) + 1U);
    const int rounds = static_cast<int>(large(400));
    for (int round = 0; round < rounds; ++round) {
      const auto& to = plan.destinations[random() % plan.destinations.size()];
      window->accumulate(
          view, {.self_weight = 0.5, .destinations = {{{.rank = to.rank, .weight = 0.5}}}});
      if (round % 3 == 0) {
        window->update_then_collect(round % 2 == 0 ? ops::Exclusion::None : ops::Exclusion::Mutex);
      }
    }
    ops::barrier(context);
    window->update_then_collect();
    EXPECT_NEAR(total(context, value[7]), before, 1e-9 * before);
    EXPECT_NEAR(total(context, window->associated_weight()), context.size(), 1e-12);
    for (const double element : value) {
      EXPECT_EQ(element, value[7]);
    }
    window->free();
  });
}

// Push-sum on a directed ring with uneven degrees: z = x / m reaches the mean, where x does not.
TEST(Window, PushSumReachesTheMeanOnAnUnbalancedGraph) {
  on_ranks({.at_least = 3, .at_most = 4}, [](Context& context) {
    const int n = context.size();
    NeighborPlan plan = NeighborPlan::alone(context.rank(), n);
    std::vector<std::vector<int>> out(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r) {
      out[static_cast<std::size_t>(r)] = {(r + 1) % n};
    }
    out[0].push_back(2);
    for (int r = 0; r < n; ++r) {
      for (const int to : out[static_cast<std::size_t>(r)]) {
        if (to == context.rank()) {
          plan.sources.push_back({.rank = r});
        }
        if (r == context.rank()) {
          plan.destinations.push_back({.rank = to});
        }
      }
    }
    const double share = 1.0 / (1.0 + static_cast<double>(plan.destinations.size()));
    for (auto& to : plan.destinations) {
      to.weight = share;
    }
    double value = context.rank();
    const BufferView view{.data = &value, .count = 1, .dtype = Dtype::Float64};
    const auto window = Window::create(
        context, view, plan,
        {.fill = ops::WindowFill::Zeros, .associated_weight = ops::AssociatedWeight::On});
    for (int step = 0; step < 60; ++step) {
      window->accumulate(view, {.self_weight = share});
      ops::barrier(context);
      window->update_then_collect();
      ops::barrier(context);
    }
    EXPECT_NEAR(value / window->associated_weight(), (n - 1) / 2.0, 1e-6);
    EXPECT_GT(total(context, std::abs(value - (n - 1) / 2.0)), 1e-3);
    window->free();
  });
}

TEST(Window, FillDropsWhatHasComeIn) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = full_plan(context);
    const double own = context.rank() + 1;
    std::vector<double> value(3000, own);
    const BufferView view{.data = value.data(), .count = 3000, .dtype = Dtype::Float64};
    const auto window =
        Window::create(context, view, plan, {.associated_weight = ops::AssociatedWeight::On});
    for (const ops::WindowFill fill : {ops::WindowFill::Zeros, ops::WindowFill::OwnValue}) {
      window->put(view);
      ops::barrier(context);
      window->set_associated_weight(0.5);
      window->fill(fill);
      for (const auto& [source, version] : window->versions()) {
        EXPECT_EQ(version, 0) << source;
      }
      window->update_then_collect();
      EXPECT_EQ(window->associated_weight(), 0.5) << "the buffers' weights are dropped too";
      const bool counts_own = fill == ops::WindowFill::OwnValue;
      const double copies = counts_own ? context.size() : 1;
      EXPECT_EQ(value, std::vector<double>(3000, own * copies));
      ops::barrier(context);
    }
    EXPECT_THROW(window->set_associated_weight(std::nan("")), InvalidArgument);
    window->free();
  });
}

TEST(Window, IsOneSided) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = full_plan(context);
    float value = static_cast<float>(context.rank());
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, plan, {.fill = ops::WindowFill::Zeros});
    ops::barrier(context);
    if (context.rank() == 0) {
      window->put(view);  // the others call nothing meanwhile
      window->accumulate(view);
      window->get();
      value = -1.0F;
      meet(context);
    } else {
      meet(context);
      EXPECT_EQ(window->versions().front(), (std::pair<int, std::int64_t>{0, 2}));
    }
    ops::barrier(context);
    window->free();
  });
}

TEST(Window, CallsThatNobodyWaitsForRunInOrder) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = ring_plan(context);
    std::vector<std::vector<float>> values;
    float own = 0.0F;
    const auto window = Window::create(context, {.data = &own, .count = 1}, plan);
    for (int i = 0; i < 20; ++i) {
      values.push_back({static_cast<float>(i)});
    }
    std::vector<Work> works;
    for (auto& value : values) {
      works.push_back(window->put_nonblocking({.data = value.data(), .count = 1}));
    }
    float last = 100.0F;
    window->put({.data = &last, .count = 1});
    for (const Work& work : works) {
      work.wait();
      EXPECT_TRUE(work.done());
    }
    ops::barrier(context);
    window->update_then_collect();
    EXPECT_EQ(own, 100.0F * static_cast<float>(plan.sources.size()));
    window->free();
  });
}

// Each rank gives half of its weight away while it takes in what has come.
TEST(Window, WeightIsConservedWhileAccumulatesOverlapWithCollects) {
  on_ranks({.at_least = 2}, [](Context& context) {
    std::vector<double> values(50'000, 0.0);
    std::vector<double> given(values.size(), 0.0);
    const auto view_of_doubles = [](std::vector<double>& v) {
      return BufferView{
          .data = v.data(), .count = static_cast<std::int64_t>(v.size()), .dtype = Dtype::Float64};
    };
    const auto plan = full_plan(context);
    const auto window = Window::create(
        context, view_of_doubles(values), plan,
        {.fill = ops::WindowFill::Zeros, .associated_weight = ops::AssociatedWeight::On});
    std::vector<WeightedRank> halves = plan.destinations;
    for (WeightedRank& destination : halves) {
      destination.weight = 0.5 / static_cast<double>(halves.size());
    }
    meet(context);
    for (int round = 0; round < 30; ++round) {
      const Work work = window->accumulate_nonblocking(
          view_of_doubles(given), {.self_weight = 0.5, .destinations = halves});
      window->update_then_collect();
      work.wait();
    }
    meet(context);
    window->update_then_collect();
    EXPECT_NEAR(total(context, window->associated_weight()), context.size(), 1e-12);
    ops::barrier(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
