// Stamps of what ranks put into each other's buffers, and waits for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/window.hpp"
#include "tests/bodies/window_plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using ops::Window;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::minutes kLong{1};

TEST(Window, StampsTellWhatHasComeLast) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = full_plan(context);
    std::vector<float> value{1.0F};
    const BufferView view{.data = value.data(), .count = 1};
    const auto window = Window::create(context, view, plan);
    const auto expect_stamps = [&](auto stamp_of) {
      for (const WeightedRank& source : plan.sources) {
        EXPECT_EQ(window->stamp_of(source.rank), stamp_of(source.rank)) << source.rank;
      }
    };
    EXPECT_THAT(error_of<InvalidArgument>([&] { (void)window->stamp_of(context.rank()); }),
                HasSubstr("stamp_of: expected a rank that it hears"));
    expect_stamps([](int) { return 0; });
    ops::barrier(context);
    window->put(view, {.stamp = 10 + context.rank()});
    EXPECT_TRUE(window->wait_for(plan.sources, 10, kLong));
    ops::barrier(context);
    expect_stamps([](int source) { return 10 + source; });
    ops::barrier(context);
    window->accumulate(view, {.stamp = 20 + context.rank()});
    ops::barrier(context);
    expect_stamps([](int source) { return 20 + source; });
    window->update();
    expect_stamps([](int source) { return 20 + source; });
    ops::barrier(context);
    window->get({.sources = {{plan.sources.front()}}});
    const int fetched = plan.sources.front().rank;
    expect_stamps([&](int source) { return source == fetched ? 0 : 20 + source; });
    window->fill(ops::WindowFill::Zeros);
    expect_stamps([](int) { return 0; });
    ops::barrier(context);
    window->announce(30 + context.rank());
    EXPECT_TRUE(window->wait_for(plan.sources, 30, kLong));
    ops::barrier(context);
    expect_stamps([](int source) { return 30 + source; });
    EXPECT_EQ(window->versions().front().second, 0) << "nothing was written";
    ops::barrier(context);
    window->free();
  });
}

TEST(Window, AWaitEndsWithTheValueOrWithItsTime) {
  on_ranks({.at_least = 2, .at_most = 4}, [](Context& context) {
    const NeighborPlan plan = full_plan(context);
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, plan);
    ops::barrier(context);
    if (context.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      window->put(view, {.stamp = 7});
      meet(context);
    } else {
      EXPECT_FALSE(window->wait_for({{.rank = 0}}, 8, std::chrono::nanoseconds(0)));
      EXPECT_TRUE(window->wait_for({{.rank = 0}}, 7));
      EXPECT_TRUE(window->wait_for({{.rank = 0}}, 3, std::chrono::nanoseconds(0)));
      EXPECT_FALSE(window->wait_for({{.rank = 0}}, 8, std::chrono::milliseconds(3)));
      meet(context);
    }
    ops::barrier(context);
    window->free();
  });
}

TEST(Window, AWaitSaysWhatItExpectedAndFound) {
  const Ranks ranks{.at_least = 2, .at_most = 3, .settings = [](Settings& settings, int rank) {
                      settings.timeout = std::chrono::milliseconds(rank == 1 ? 300 : 20'000);
                    }};
  on_ranks(ranks, [](Context& context) {
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, full_plan(context), {.name = "late"});
    if (context.rank() == 0) {
      window->put(view, {.stamp = 2});
    }
    meet(context);
    if (context.rank() == 1) {
      EXPECT_THAT(error_of<TimeoutError>([&] { window->wait_for({{.rank = 0}}, 3); }),
                  AllOf(HasSubstr("rank 1, window 'late', win_wait: expected a value of rank 0 "
                                  "with a stamp of at least 3, found 2 after 0.3 s"),
                        HasSubstr("BLUEFOG_TIMEOUT")));
      EXPECT_THAT(error_of<InvalidArgument>([&] { window->wait_for({{.rank = 1}}, 3); }),
                  HasSubstr("sources"));
      EXPECT_THAT(error_of<InvalidArgument>(
                      [&] { window->wait_for({{.rank = 0}}, 3, std::chrono::seconds(-2)); }),
                  HasSubstr("expected a time of at least 0 to wait, found -2 s"));
    }
    meet(context);
  });
}

TEST(Window, AWaitForARankThatHasDestroyedItsPartEnds) {
  on_ranks({.at_least = 2, .at_most = 4}, [](Context& context) {
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    auto window = Window::create(context, view, full_plan(context));
    if (context.rank() == 0) {
      window->put(view, {.stamp = 5});
      window.reset();
      meet(context);
    } else {
      meet(context);
      EXPECT_TRUE(window->wait_for({{.rank = 0}}, 5));  // what it has put stays
      error_of<WindowGoneError>([&] { window->wait_for({{.rank = 0}}, 6, kLong); });
    }
    meet(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
