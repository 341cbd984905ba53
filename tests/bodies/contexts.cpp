// Contexts: how they begin, are copied, serve threads, and what a fork of a rank may not do.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/shared_addresses.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Calls of two contexts are in no order, so that they are no mismatch.
TEST(Contexts, ATimeoutTellsWhatTheMissingRankHasBegunInAnotherContext) {
  on_ranks(
      {.at_least = 2,
       .at_most = 2,
       .settings = [](Settings& settings,
                      int /*rank*/) { settings.timeout = std::chrono::seconds(1); },
       .expect_usable = false},
      [](Context& context) {
        const auto copy = context.duplicate();
        // Where several threads make calls, another one may come to the rescue.
        std::thread([&] { ops::barrier(*copy); }).join();
        float value = 1;
        const BufferView buffer{.data = &value, .count = 1};
        std::string text;
        if (context.rank() == 0) {
          text = error_of<TimeoutError>([&] { ops::barrier(*copy); });
          EXPECT_THAT(text, HasSubstr("in another context, as each distributed optimizer has "
                                      "one, it has begun call 2, allreduce, which this rank "
                                      "has not"));
        } else {
          text = error_of<TimeoutError>([&] { ops::allreduce(context, buffer); });
          EXPECT_THAT(text, HasSubstr("it has begun call 2, barrier, which this rank has not"));
        }
        EXPECT_THAT(text, HasSubstr(fmt::format("no message from rank {} (", 1 - context.rank())));
        meet(context);
      });
}

TEST(Contexts, RanksThatWaitForEachOtherInTwoContextsFailAtOnceAndGoOn) {
  on_ranks(
      {.at_least = 2,
       .at_most = 2,
       .layouts = {Layout::OneHost},
       .settings = [](Settings& settings,
                      int /*rank*/) { settings.timeout = std::chrono::minutes(10); }},
      [](Context& context) {
        const auto copy = context.duplicate();
        float value = 1;
        const BufferView buffer{.data = &value, .count = 1};
        const auto step = [&] { ops::allreduce(*copy, buffer); };
        const auto barrier = [&] { ops::barrier(context); };
        step();
        // Rank 0 makes a step more than rank 1.
        const std::string text =
            context.rank() == 0 ? error_of<MismatchError>(step) : error_of<MismatchError>(barrier);
        EXPECT_THAT(text, HasSubstr("in another context, as each distributed optimizer has one: it "
                                    "has begun call"));
        // Each rank hears that the other one has left the call that it has not made.
        EXPECT_NE(failure_of(context.rank() == 0 ? std::function<void()>(barrier) : step).first,
                  -1);
        step();
        EXPECT_EQ(value, 1);
        meet(context);
      });
}

TEST(Contexts, SettingsThatDifferAreNamedOnAllRanks) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const auto create = [&](const std::function<void(Settings&)>& change) -> std::string {
      Settings settings = context.settings();
      if (context.rank() == 1) {
        change(settings);
      }
      try {
        const auto bootstrap =
            context.core().bootstrap().duplicate(Deadline::after(std::chrono::seconds(20)));
        (void)Context::create(bootstrap, settings);
        return "no error";
      } catch (const InvalidArgument& error) {
        return error.what();
      }
    };
    const std::string other = context.settings().transport == TransportChoice::Mpi ? "auto" : "mpi";
    EXPECT_THAT(create([&](Settings& settings) {
                  settings.transport =
                      other == "mpi" ? TransportChoice::Mpi : TransportChoice::Auto;
                }),
                AllOf(HasSubstr(fmt::format("rank {}, Context::create", context.rank())),
                      HasSubstr("rank 1 has BLUEFOG_TRANSPORT " + other)));
    EXPECT_THAT(create([](Settings& settings) { settings.nodes_per_machine = 7; }),
                HasSubstr("rank 1 has BLUEFOG_NODES_PER_MACHINE 7"));
  });
}

TEST(Contexts, WhatOneRankCannotReadOrWriteIsHeardOfByAll) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const auto create = [&](std::string Settings::*prefix, const std::string& value) {
      Settings settings = context.settings();
      if (context.rank() == 1) {
        settings.*prefix = value;
        settings.nodes_per_machine = settings.problem.empty() ? settings.nodes_per_machine : 7;
      }
      const auto bootstrap =
          context.core().bootstrap().duplicate(Deadline::after(std::chrono::seconds(20)));
      const auto [rank, text] = failure_of([&] { (void)Context::create(bootstrap, settings); });
      EXPECT_EQ(rank, context.rank() == 1 ? -1 : 1) << text;
      return text;
    };
    const std::string missing = "/nonexistent/folder/prefix";
    EXPECT_THAT(create(&Settings::timeline, missing),
                AllOf(HasSubstr(fmt::format("rank {}, Context::create", context.rank())),
                      HasSubstr("timeline (BLUEFOG_TIMELINE): cannot write " + missing +
                                "1.json: No such file or directory")));
    EXPECT_THAT(create(&Settings::flight_recorder, missing),
                AllOf(HasSubstr(fmt::format("rank {}, Context::create", context.rank())),
                      HasSubstr("flight record (BLUEFOG_FLIGHT_RECORDER): cannot write " + missing +
                                "1.json: No such file or directory")));
    // What it could not read is at its default, which others may have changed.
    const std::string unread = "BLUEFOG_NODES_PER_MACHINE=two: expected an integer";
    EXPECT_THAT(create(&Settings::problem, unread),
                AllOf(HasSubstr(fmt::format("rank {}, Context::create", context.rank())),
                      HasSubstr(unread)));
  });
}

// ThreadSanitizer does not know forks of programs with threads; AddressSanitizer of GCC 12 holds no
// lock of its allocator over a fork, so that a child may wait for one that nobody gives back.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(Contexts, AForkIsNoRankAndDisturbsNone) {
  on_ranks([](Context& context) {
    std::vector<float> values(1000, 1.0F);
    const BufferView buffer{.data = values.data(), .count = 1000};
    ops::allreduce(context, buffer);  // threads and streams are in use
    auto copy = context.duplicate();
    auto shared = context.allocate_shared(10'000);
    shared.get()[9'999] = std::byte{1};
    if (context.rank() == 0) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        int refused = 0;
        for (const auto& call : std::vector<std::function<void()>>{
                 [&] { ops::allreduce(context, buffer); },
                 [&] { (void)ops::neighbor_allreduce_nonblocking(context, buffer, ring(context)); },
                 [&] { (void)context.duplicate(); }, [&] { (void)context.allocate_shared(64); }}) {
          try {
            call();
          } catch (const StateError&) {
            ++refused;
          }
        }
        copy.reset();
        context.close();
        shared.reset();
        ::_exit(refused == 4 ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    ops::barrier(*copy);
    ops::allreduce(*copy, buffer);
    EXPECT_EQ(values.front(), 1.0F);
    EXPECT_EQ(shared.get()[9'999], std::byte{1}) << "the fork gave its parent's memory back";
  });
}
#endif

TEST(Contexts, DuplicatesServeSeveralThreads) {
  on_ranks([](Context& context) {
    constexpr int kThreads = 3;
    std::vector<std::shared_ptr<Context>> copies;
    for (int i = 0; i < kThreads; ++i) {
      copies.push_back(context.duplicate());
    }
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&own = *copies[static_cast<std::size_t>(i)], i] {
        for (int step = 0; step < 20; ++step) {
          std::vector<float> values(static_cast<std::size_t>(1 + 3000 * i),
                                    static_cast<float>(own.rank()));
          ops::allreduce(own,
                         {.data = values.data(), .count = static_cast<std::int64_t>(values.size())},
                         {.reduction = ops::Reduction::Sum});
          EXPECT_EQ(values.back(), static_cast<float>(own.size() * (own.size() - 1) / 2));
        }
      });
    }
    for (int step = 0; step < 20; ++step) {
      ops::barrier(context);
    }
    threads.clear();
    ops::barrier(context);  // nobody leaves before all are through
  });
}

/// Entries of a folder that the system makes.
std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Every wrapped optimizer has a copy: hundreds of them live beside each other.
TEST(Contexts, CopiesTakeNoDescriptorsAndFewAddresses) {
  on_ranks({.at_least = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    constexpr std::size_t kCopies = 20;
    constexpr std::size_t kMostBytes = std::size_t{8} << 20U;
    // The first call of a kind opens what the process keeps.
    { const auto first = context.duplicate(); }
    meet(context);
    // One rank counts at a time: threads would count what others open to count.
    const bool counts = context.rank() == 0;
    const std::size_t descriptors = counts ? entries_of("/proc/self/fd") : 0;
    const std::size_t addresses = counts ? shared_addresses() : 0;
    meet(context);
    std::vector<std::shared_ptr<Context>> copies;
    for (std::size_t i = 0; i < kCopies; ++i) {
      copies.push_back(context.duplicate());
      std::vector<float> values(50'000, static_cast<float>(context.rank()));
      ops::allreduce(*copies.back(), {.data = values.data(), .count = 50'000},
                     {.reduction = ops::Reduction::Sum});
      EXPECT_EQ(values.back(), static_cast<float>(context.size() * (context.size() - 1) / 2));
    }
    meet(context);
    if (counts) {
      EXPECT_LE(entries_of("/proc/self/fd"), descriptors);
      // Threads have the mappings of all ranks in their process.
      EXPECT_LE(shared_addresses() - addresses,
                kCopies * kMostBytes * static_cast<std::size_t>(context.size()));
    }
    meet(context);
  });
}

TEST(Contexts, SeveralThreadsMayWaitForTheSameWork) {
  on_ranks([](Context& context) {
    std::vector<float> values(500'000, static_cast<float>(context.rank()));
    const Work work = ops::allreduce_nonblocking(context, {.data = values.data(), .count = 500'000},
                                                 {.reduction = ops::Reduction::Sum});
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        work.wait();
        EXPECT_EQ(values.back(), static_cast<float>(context.size() * (context.size() - 1) / 2));
      });
    }
  });
}

TEST(Contexts, WorkOutlivesItsContext) {
  on_ranks(Ranks{.expect_usable = false}, [](Context& context) {
    Work work;
    {
      const auto copy = context.duplicate();
      work = ops::barrier_nonblocking(*copy);
      work.wait();
      ops::barrier(context);
    }
    EXPECT_TRUE(work.done());
    work.wait();
  });
}

// Messages of one rank stand behind each other where an earlier call waits for another rank.
TEST(Contexts, ARankThatHasMadeItsCallsMayCloseWhileOthersWaitForAnother) {
  on_ranks({.at_least = 3, .at_most = 3, .expect_usable = false}, [](Context& context) {
    constexpr std::size_t kCalls = 4;
    auto copy = context.duplicate();
    NeighborPlan plan = NeighborPlan::alone(context.rank(), context.size());
    if (context.rank() == 0) {
      plan.self_weight = 0.0;
      plan.sources = {{.rank = 1, .weight = 0.25}, {.rank = 2, .weight = 0.75}};
    } else {
      plan.destinations = {{.rank = 0, .weight = 1.0}};
    }
    if (context.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    std::vector<float> values(kCalls, static_cast<float>(context.rank()));
    std::vector<Work> works;
    works.reserve(kCalls);
    for (float& value : values) {
      works.push_back(ops::neighbor_allreduce_nonblocking(
          *copy, {.data = &value, .count = 1}, std::make_shared<const NeighborPlan>(plan)));
    }
    for (Work& work : works) {
      work.wait();
    }
    copy.reset();
    meet(context);
    if (context.rank() == 0) {
      EXPECT_THAT(values, ::testing::Each(1.75F));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
