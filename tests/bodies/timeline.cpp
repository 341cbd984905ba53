// The spans of calls in a timeline: nested, they tell copying from waiting, and for whom.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/window.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/trace_events.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

constexpr std::chrono::milliseconds kLate{100};
constexpr double kLateUs = 80'000.0;

/// The spans of each rank in this process, after `body` has run on two ranks.
std::map<int, std::vector<TraceSpan>> traced(Layout layout,
                                             const std::function<void(Context&)>& body) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("bluefog_trace_{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::mutex mutex;
  std::map<int, std::vector<TraceSpan>> spans;
  on_ranks({.at_least = 2,
            .at_most = 2,
            .layouts = {layout},
            .settings = [&](Settings& settings, int) { settings.timeline = folder / "trace"; },
            .expect_usable = false},
           [&](Context& context) {
             body(context);
             const std::scoped_lock lock(mutex);
             spans[context.rank()];
           });
  for (auto& [rank, of_rank] : spans) {
    of_rank = spans_of(read_trace(folder / fmt::format("trace{}.json", rank)));
  }
  std::filesystem::remove_all(folder);
  return spans;
}

std::vector<TraceSpan> named(const std::vector<TraceSpan>& spans, const std::string& name) {
  std::vector<TraceSpan> found;
  std::ranges::copy_if(spans, std::back_inserter(found),
                       [&](const TraceSpan& span) { return span.name == name; });
  return found;
}

/// The longest span of that name inside `outer`, or a span without a length if there is none.
TraceSpan longest_inside(const std::vector<TraceSpan>& spans, const TraceSpan& outer,
                         const std::string& name) {
  TraceSpan longest;
  for (const TraceSpan& span : named(spans, name)) {
    if (outer.holds(span) && span.end_us - span.begin_us > longest.end_us - longest.begin_us) {
      longest = span;
    }
  }
  return longest;
}

class Timelines : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Timelines,
                         ::testing::Values(Layout::OneHost, Layout::TwoHosts, Layout::NetworkOnly));

TEST_P(Timelines, ACallShowsCopyingWaitingAndCombining) {
  const auto spans = traced(GetParam(), [](Context& context) {
    const auto plan = std::make_shared<const NeighborPlan>(
        topology::ring(context.size()).plan_for(context.rank()));
    std::vector<float> x(100'000, 1.0F);
    ops::barrier(context);
    if (context.rank() == 1) {
      std::this_thread::sleep_for(kLate);
    }
    ops::neighbor_allreduce(context, {.data = x.data(), .count = 100'000}, plan, {.name = "x"});
    ops::barrier(context);
  });
  for (const auto& [rank, of_rank] : spans) {
    const auto calls = named(of_rank, "NEIGHBOR_ALLREDUCE");
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(calls[0].row, "x");
    EXPECT_EQ(longest_inside(of_rank, calls[0], "publish").row, "x");
    EXPECT_EQ(longest_inside(of_rank, calls[0], "combine").row, "x");
    if (rank == 0) {
      const TraceSpan wait = longest_inside(of_rank, calls[0], "wait for rank 1");
      EXPECT_GT(wait.end_us - wait.begin_us, kLateUs);
      EXPECT_LE(wait.end_us, longest_inside(of_rank, calls[0], "combine").begin_us + 0.5);
    }
  }
}

TEST_P(Timelines, CallsOfOneNameThatOverlapGetRowsOfTheirOwn) {
  const auto spans = traced(GetParam(), [](Context& context) {
    const auto plan = std::make_shared<const NeighborPlan>(
        topology::ring(context.size()).plan_for(context.rank()));
    std::vector<float> x(1000, 1.0F);
    std::vector<float> y(1000, 1.0F);
    const Work resting =
        ops::neighbor_allreduce_nonblocking(context, {.data = x.data(), .count = 1000}, plan,
                                            {.name = "x", .completion = ops::Completion::OnWait});
    ops::neighbor_allreduce(context, {.data = y.data(), .count = 1000}, plan, {.name = "x"});
    resting.wait();
    ops::hierarchical_neighbor_allreduce(
        context, {.data = x.data(), .count = 1000},
        std::make_shared<const NeighborPlan>(
            topology::ring(context.machines().machine_count())
                .plan_for(context.machines().machine_of(context.rank()))));
    ops::barrier(context);
  });
  for (const auto& [rank, of_rank] : spans) {
    const auto calls = named(of_rank, "NEIGHBOR_ALLREDUCE");
    ASSERT_EQ(calls.size(), 2U);
    EXPECT_EQ(calls[0].row, "x");
    EXPECT_EQ(calls[1].row, "x (2)");
    EXPECT_EQ(longest_inside(of_rank, calls[0], "rest until waited for").row, "x");
    EXPECT_EQ(named(of_rank, "HIERARCHICAL_NEIGHBOR_ALLREDUCE").size(), 1U);
  }
}

TEST_P(Timelines, CallsOfWindowsShowWhomTheyWaitFor) {
  const auto spans = traced(GetParam(), [](Context& context) {
    const NeighborPlan plan = topology::ring(context.size()).plan_for(context.rank());
    std::vector<float> x(100, 1.0F);
    const BufferView view{.data = x.data(), .count = 100};
    const auto window = ops::Window::create(context, view, plan, {.name = "w"});
    if (context.rank() == 1) {
      const auto lock = window->lock_self();
      ops::barrier(context);
      std::this_thread::sleep_for(kLate);
    } else {
      ops::barrier(context);
      window->put(view, {.exclusion = ops::Exclusion::Mutex});
      window->accumulate(view);
      window->get();
      window->update();
    }
    ops::barrier(context);
    window->free();
  });
  for (const auto& [rank, of_rank] : spans) {
    if (rank == 1) {
      const auto locks = named(of_rank, "MUTEX");
      ASSERT_EQ(locks.size(), 1U);
      const TraceSpan hold = longest_inside(of_rank, locks[0], "hold");
      EXPECT_GT(hold.end_us - hold.begin_us, kLateUs);
      continue;
    }
    const auto puts = named(of_rank, "WIN_PUT");
    ASSERT_EQ(puts.size(), 1U);
    EXPECT_EQ(puts[0].row, "w");
    const TraceSpan part = longest_inside(of_rank, puts[0], "rank 1");
    const TraceSpan wait = longest_inside(of_rank, part, "wait for the mutex of rank 1");
    EXPECT_GT(wait.end_us - wait.begin_us, kLateUs);
    for (const char* const call : {"WIN_ACCUMULATE", "WIN_GET", "WIN_UPDATE"}) {
      EXPECT_EQ(named(of_rank, call).size(), 1U) << call;
    }
  }
}

}  // namespace
}  // namespace bluefog::testing
