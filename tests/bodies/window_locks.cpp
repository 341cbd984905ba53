// The mutexes of windows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/window.hpp"
#include "tests/bodies/window_plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using ops::Window;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Window, MutexesKeepCallsApart) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = full_plan(context);
    // Two halves that only differ while somebody writes them.
    std::vector<double> value(4096, 0.0);
    const BufferView view{.data = value.data(), .count = 4096, .dtype = Dtype::Float64};
    const auto window = Window::create(context, view, plan);
    ops::barrier(context);
    for (int round = 1; round <= 20; ++round) {
      {
        const auto lock = window->lock_self();
        for (double& element : value) {
          element = round;
        }
      }
      window->get({.exclusion = ops::Exclusion::Mutex});
      std::vector<double> seen(4096);
      const int source = plan.sources.front().rank;
      window->update(
          {.weights = {{.self_weight = 0.0, .sources = {{.rank = source}}}},
           .output = BufferView{.data = seen.data(), .count = 4096, .dtype = Dtype::Float64}});
      EXPECT_EQ(seen.front(), seen.back());
    }
    ops::barrier(context);
    window->free();
  });
}

TEST(Window, ALockThatOutlivesItsWindowLeavesTheNextOneAlone) {
  on_ranks([](Context& context) {
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto plan = full_plan(context);
    auto window = Window::create(context, view, plan, {.name = "first"});
    std::optional<ops::WindowLock> lock = window->lock_self();
    window->free();
    const auto next = Window::create(context, view, plan, {.name = "next"});  // in the same memory
    std::optional<ops::WindowLock> next_lock = next->lock_self();
    lock.reset();
    std::atomic<bool> is_taken = false;
    std::thread other([&] {
      const auto own = next->lock_self();
      is_taken = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(is_taken);
    next_lock.reset();
    other.join();
    ops::barrier(context);
  });
}

TEST(Window, LocksThatAreNotFreeEndInATimeoutThatNamesTheHolder) {
  const Ranks ranks{
      .at_least = 2,
      .at_most = 2,
      .layouts = {Layout::OneHost, Layout::NetworkOnly},
      .settings = [](Settings& settings, int) { settings.timeout = std::chrono::seconds(1); }};
  on_ranks(ranks, [](Context& context) {
    float value = 0.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, full_plan(context));
    if (context.rank() == 0) {
      const auto lock = window->lock_self();
      meet(context);
      meet(context);
    } else {
      meet(context);
      try {
        window->put(view, {.exclusion = ops::Exclusion::Mutex});
        ADD_FAILURE() << "expected an error";
      } catch (const TimeoutError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 0 holds it"));
      }
      // The end of the context does not wait for a rank that may never come.
      EXPECT_TRUE(context.core().engine().has_abandoned());
      meet(context);
    }
    ops::barrier(context);
    window->put(view, {.exclusion = ops::Exclusion::Mutex});
    ops::barrier(context);
    window->free();
  });
}

TEST(Window, ACallThatStandsBeforeAMutexDoesNotKeepTheContextFromItsEnd) {
  const Ranks ranks{
      .at_least = 2,
      .at_most = 2,
      .layouts = {Layout::OneHost, Layout::NetworkOnly},
      .settings = [](Settings& settings, int) { settings.timeout = std::chrono::seconds(600); },
      .expect_usable = false};
  on_ranks(ranks, [](Context& context) {
    float value = 0.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, full_plan(context));
    if (context.rank() == 0) {
      const auto lock = window->lock_self();
      meet(context);
      meet(context);  // the other rank is gone, and has waited for nothing
    } else {
      meet(context);
      const Work work = window->put_nonblocking(view, {.exclusion = ops::Exclusion::Mutex});
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it stands before the mutex
      std::thread closing([&] { context.close(); });
      EXPECT_THAT(error_of<StateError>([&] { work.wait(); }), HasSubstr("the context was closed"));
      closing.join();
      meet(context);
    }
  });
}

TEST(Window, AMutexThatThisThreadHoldsIsRefused) {
  on_ranks([](Context& context) {
    float value = 0.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, full_plan(context), {.name = "own"});
    for (int rank = 0; rank < context.size(); ++rank) {
      const auto lock = window->lock({rank});
      const std::string error = error_of<StateError>([&] { (void)window->lock({rank}); });
      EXPECT_THAT(error, AllOf(HasSubstr("rank " + std::to_string(context.rank())),
                               HasSubstr("window 'own', mutex"),
                               HasSubstr("the mutex of rank " + std::to_string(rank))));
      if (rank != context.rank()) {
        const ops::WindowPutOptions to_it{.destinations = {{{.rank = rank}}},
                                          .exclusion = ops::Exclusion::Mutex};
        EXPECT_THAT(error_of<StateError>([&] { window->put(view, to_it); }), HasSubstr("win_put"));
      }
    }
    { const auto again = window->lock_self(); }
    ops::barrier(context);
  });
}

// Whoever would do the work: a blocking call in line behind others is made by the window's thread.
TEST(Window, CallsThatTakeAMutexThatThisThreadHoldsAreRefusedBeforeAnythingMoves) {
  on_ranks({.at_least = 2}, [](Context& context) {
    float value = 1.0F + static_cast<float>(context.rank());
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, full_plan(context),
                                       {.name = "own", .fill = ops::WindowFill::Zeros});
    meet(context);
    const int last = window->plan().destinations.back().rank;
    const ops::WindowPutOptions put{.self_weight = 0.5, .exclusion = ops::Exclusion::Mutex};
    const ops::WindowGetOptions get{.exclusion = ops::Exclusion::Mutex};
    const std::string held = "the mutex of rank " + std::to_string(last);
    const auto refusal = [&](std::string_view call) {
      return AllOf(HasSubstr("rank " + std::to_string(context.rank())), HasSubstr(call),
                   HasSubstr(held), HasSubstr("wait for itself"));
    };
    {
      const auto lock = window->lock({last});
      const auto begun = std::chrono::steady_clock::now();
      EXPECT_THAT(error_of<StateError>([&] { window->put(view, put); }), refusal("win_put"));
      EXPECT_THAT(error_of<StateError>([&] { window->put_nonblocking(view, put).wait(); }),
                  refusal("win_put"));
      EXPECT_THAT(error_of<StateError>([&] { window->accumulate(view, put); }),
                  refusal("win_accumulate"));
      EXPECT_THAT(error_of<StateError>([&] { window->accumulate_nonblocking(view, put).wait(); }),
                  refusal("win_accumulate"));
      EXPECT_THAT(error_of<StateError>([&] { window->get(get); }), refusal("win_get"));
      EXPECT_THAT(error_of<StateError>([&] { window->get_nonblocking(get).wait(); }),
                  refusal("win_get"));
      EXPECT_LT(std::chrono::steady_clock::now() - begun, context.settings().timeout);
      window->put_nonblocking(view, {.destinations = {{{.rank = last, .weight = 0.0}}}}).wait();
    }
    EXPECT_EQ(value, 1.0F + static_cast<float>(context.rank()));
    meet(context);
    for (const auto& [source, version] : window->versions()) {
      const bool is_put_by_it =
          (source == context.size() - 1 ? context.size() - 2 : context.size() - 1) ==
          context.rank();
      EXPECT_EQ(version, is_put_by_it ? 1 : 0) << "from rank " << source;
    }
    meet(context);
    window->put(view, put);  // which takes the mutex that is free again
    meet(context);
    window->free();
  });
}

#if !defined(__SANITIZE_THREAD__)  // which reports the release by the wrong thread, as it should
TEST(Window, ALockThatAnotherThreadDropsStaysTakenUntilItsThreadEnds) {
  const Ranks ranks{
      .at_most = 2, .layouts = {Layout::OneHost}, .settings = [](Settings& settings, int) {
        settings.timeout = std::chrono::seconds(1);
      }};
  on_ranks(ranks, [](Context& context) {
    float value = 0.0F;
    const auto window = Window::create(context, {.data = &value, .count = 1}, full_plan(context));
    std::optional<ops::WindowLock> lock;
    std::latch is_taken(1);
    std::latch may_end(1);
    std::thread taker([&] {
      lock.emplace(window->lock_self());
      is_taken.count_down();
      may_end.wait();
    });
    is_taken.wait();
    lock.reset();
    EXPECT_THAT(error_of<TimeoutError>([&] { (void)window->lock_self(); }),
                HasSubstr("rank " + std::to_string(context.rank()) + " holds it"));
    may_end.count_down();
    taker.join();
    { const auto own = window->lock_self(); }
    window->free();
  });
}
#endif

// All keep the window, or none does.
TEST(Window, FreeingIsRefusedOnEveryRankWhereAThreadHoldsAMutex) {
  on_ranks({.at_least = 2}, [](Context& context) {
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, full_plan(context), {.name = "held"});
    std::latch is_taken(1);
    std::latch may_end(1);
    std::thread taker([&] {
      std::optional<ops::WindowLock> lock;
      if (context.rank() == 0) {
        lock.emplace(window->lock({context.size() - 1}));
      }
      is_taken.count_down();
      may_end.wait();
    });
    is_taken.wait();
    if (context.rank() == 0) {
      EXPECT_THAT(error_of<StateError>([&] { window->free(); }), HasSubstr("win_free"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { window->free(); }),
                  AllOf(HasSubstr("window 'held', win_free"), HasSubstr("rank 0 did not free it"),
                        HasSubstr("another thread of rank 0 holds")));
    }
    may_end.count_down();
    taker.join();
    meet(context);
    window->put(view);
    meet(context);
    window->free();
  });
}

}  // namespace
}  // namespace bluefog::testing
