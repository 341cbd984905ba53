// Ranks that leave, come too late, or close: errors that name them, soon.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

Ranks with_a_leaver() { return {.at_least = 2, .expect_usable = false}; }

TEST(Failure, ARankThatLeavesIsNamed) {
  on_ranks(with_a_leaver(), [](Context& context) {
    ops::barrier(context);
    if (context.rank() == 1) {
      return;  // its context goes
    }
    std::vector<float> values(1000, 1.0F);
    const BufferView buffer{.data = values.data(), .count = 1000};
    const auto [rank, text] = failure_of([&] { ops::allreduce(context, buffer); });
    // Other ranks may give up before this rank sees for itself; their error says why.
    EXPECT_NE(rank, -1) << text;
    EXPECT_THAT(text, HasSubstr("rank 1"));
  });
}

TEST(Failure, ARankThatLeavesInTheMiddleOfALargeCallIsNamed) {
  on_ranks(with_a_leaver(), [](Context& context) {
    const std::size_t count = large(4'000'000);
    std::vector<float> values(count, 1.0F);
    const BufferView buffer{.data = values.data(), .count = static_cast<std::int64_t>(count)};
    if (context.rank() == 1) {
      // Rank 1 begins the call, and goes while it is under way.
      (void)ops::neighbor_allreduce_nonblocking(context, buffer, ring(context));
      context.close();
      return;
    }
    // The pause lets the writer go before anybody takes the message.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto [rank, text] =
        failure_of([&] { ops::neighbor_allreduce(context, buffer, ring(context)); });
    if (context.rank() == 0 || context.rank() == 2) {
      EXPECT_NE(rank, -1) << text;
    } else if (text != "no error") {  // neighbours of neighbours may have had all they need
      EXPECT_NE(rank, -1) << text;
    }
  });
}

TEST(Failure, AnExceptionOfOneRankReachesTheOthersAsPeerFailure) {
  on_ranks(with_a_leaver(), [](Context& context) {
    if (context.rank() == context.size() - 1) {
      context.close();  // as unwinding would
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const auto [rank, text] = failure_of([&] { ops::barrier(context); });
    EXPECT_NE(rank, -1) << text;
    // The error comes at once, not by running into the deadline.
    EXPECT_LT(std::chrono::steady_clock::now() - start, context.settings().timeout);
  });
}

TEST(Failure, ATimeoutNamesOperationAndRankAndTheContextGoesOn) {
  on_ranks({.at_least = 2,
            .settings =
                [](Settings& settings, int rank) {
                  if (rank == 0) {
                    settings.timeout = std::chrono::milliseconds(300);
                  }
                },
            .expect_usable = false},
           [](Context& context) {
             float value = 1;
             const BufferView buffer{.data = &value, .count = 1};
             if (context.rank() == 0) {
               try {
                 ops::allreduce(context, buffer, {.name = "late"});
                 ADD_FAILURE() << "expected TimeoutError";
               } catch (const TimeoutError& e) {
                 EXPECT_THAT(e.what(), AllOf(HasSubstr("allreduce(float32[1], name 'late')"),
                                             HasSubstr("no message from rank 1")));
               }
               meet(context);
             } else {
               meet(context);
               const auto [rank, text] =
                   failure_of([&] { ops::allreduce(context, buffer, {.name = "late"}); });
               EXPECT_NE(rank, -1) << text;
               EXPECT_THAT(text, HasSubstr("rank 0"));
             }
           });
}

// A message of a refused call has no taker, also while an earlier call rests.
TEST(Failure, ARefusedCallBesideARestingOneHoldsUpNobody) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const bool is_dropped : {false, true}) {
      std::vector<float> resting(1000, static_cast<float>(context.rank()));
      const BufferView rests{.data = resting.data(), .count = 1000};
      Work work = ops::neighbor_allreduce_nonblocking(context, rests, ring(context),
                                                      {.completion = ops::Completion::OnWait});
      if (is_dropped) {
        work = Work();
      }
      float value = 1;
      const BufferView buffer{.data = &value, .count = context.rank() == 0 ? -1 : 1};
      EXPECT_NE(failure_of([&] { ops::neighbor_allreduce(context, buffer, ring(context)); }).second,
                context.rank() < 2 ? "no error" : "");
      ops::barrier(context);
      ops::neighbor_allreduce(context, {.data = &value, .count = 1}, ring(context));
      ops::barrier(context);
      work.wait();
      // A call that nobody holds goes on by itself; the other ranks have come to their barrier.
      ops::barrier(context);
    }
  });
}

// The first rank's message lies there, but the late rank must not end the call: the first gave up.
TEST(Failure, WhoComesLateToACallThatWasGivenUpHearsOfIt) {
  const Ranks two{.at_least = 2, .at_most = 2, .settings = [](Settings& settings, int) {
                    settings.timeout = std::chrono::milliseconds(500);
                  }};
  on_ranks(two, [](Context& context) {
    const bool is_late = context.rank() == 1;
    for (const std::size_t count : {std::size_t{1}, large(100'000)}) {  // in one piece and in many
      std::vector<float> values(count, is_late ? 10.0F : 2.0F);
      const BufferView buffer{.data = values.data(), .count = std::ssize(values)};
      const std::vector<std::function<void()>> calls{
          [&] { ops::pair_gossip(context, buffer, 1 - context.rank()); },
          [&] { ops::neighbor_allreduce(context, buffer, ring(context)); }};
      for (const auto& call : calls) {
        if (is_late) {
          meet(context);
        }
        const auto [rank, text] = failure_of(call);
        EXPECT_EQ(rank, is_late ? 0 : -1) << text;
        if (is_late) {
          EXPECT_THAT(text, AnyOf(HasSubstr("rank 0 has given up this call"),
                                  HasSubstr("rank 0 gave up in the middle of it")));
        } else {
          EXPECT_THAT(text, HasSubstr("BLUEFOG_TIMEOUT"));
        }
        if (!is_late) {
          meet(context);
        }
        meet(context);
      }
    }
  });
}

// The deadline is the call's own: nothing of it moves while others refuse theirs.
TEST(Failure, WordsOfOtherRanksProlongNoWait) {
  const Ranks three{.at_least = 3, .at_most = 3, .settings = [](Settings& settings, int rank) {
                      if (rank == 0) {
                        settings.timeout = std::chrono::milliseconds(400);
                      }
                    }};
  on_ranks(three, [](Context& context) {
    constexpr std::uint8_t kMostWords = 200;
    float value = 1;
    const BufferView buffer{.data = &value, .count = 1};
    const auto refuse = [&] {
      const BufferView part{.data = &value, .count = context.rank() == 1 ? -1 : 1};
      EXPECT_THAT(failure_of([&] { ops::allreduce(context, part); }).second, HasSubstr("count"));
    };
    std::byte words{};
    Work end;
    if (context.rank() == 1) {
      end = ops::pair_gossip_nonblocking(context, buffer, 0);
    }
    meet(context);
    if (context.rank() == 0) {
      const auto late = failure_of([&] { ops::pair_gossip(context, buffer, 2); }).second;
      EXPECT_THAT(late, HasSubstr("nothing moved"));
      ops::pair_gossip(context, buffer, 1);
    } else if (context.rank() == 1) {
      std::uint8_t count = 0;
      for (; !end.done() && count < kMostWords; ++count) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        refuse();
      }
      EXPECT_LT(count, kMostWords) << "rank 0 has gone on waiting";
      words = std::byte{count};
    }
    const auto all = context.core().bootstrap().allgather(std::span(&words, 1),
                                                          Deadline::after(std::chrono::minutes(1)));
    for (int i = 0; context.rank() != 1 && i < std::to_integer<int>(all[1][0]); ++i) {
      refuse();
    }
  });
}

TEST(Failure, CallsOfAPairProlongNoWaitForAllRanks) {
  const Ranks two{.at_least = 2, .at_most = 2, .settings = [](Settings& settings, int rank) {
                    if (rank == 0) {
                      settings.timeout = std::chrono::milliseconds(400);
                    }
                  }};
  on_ranks(two, [](Context& context) {
    constexpr std::size_t kMostCalls = 100;
    const bool waits = context.rank() == 0;
    std::vector<float> values(kMostCalls, 1.0F);
    const auto gossip = [&](std::size_t i) {
      return ops::pair_gossip_nonblocking(context, {.data = &values[i], .count = 1},
                                          1 - context.rank());
    };
    float value = 1;
    const BufferView buffer{.data = &value, .count = 1};
    if (waits) {
      std::vector<Work> pairs;
      for (std::size_t i = 0; i < kMostCalls; ++i) {
        pairs.push_back(gossip(i));
      }
      EXPECT_THAT(failure_of([&] { ops::allreduce(context, buffer); }).second,
                  HasSubstr("nothing moved"));
      EXPECT_FALSE(pairs.back().done()) << "it waited for as long as the pair went on";
      meet(context);
      for (Work& pair : pairs) {
        pair.wait();
      }
    } else {
      // Slowly, until the other one has given up.
      auto end = std::async(std::launch::async, [&context] { meet(context); });
      for (std::size_t i = 0; i < kMostCalls; ++i) {
        static_cast<void>(end.wait_for(std::chrono::milliseconds(50)));
        gossip(i).wait();
      }
      end.get();
      EXPECT_THAT(failure_of([&] { ops::allreduce(context, buffer); }).second,
                  HasSubstr("rank 0 has given up this call"));
    }
  });
}

TEST(Failure, ADuplicateThatNotAllMakeLeavesTheContextUsable) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const auto [rank, text] = failure_of([&] {
      if (context.rank() == 0) {
        static_cast<void>(context.duplicate());
      } else {
        ops::barrier(context);
      }
    });
    EXPECT_THAT(text, AnyOf(HasSubstr("duplicate"), HasSubstr("barrier")));
    meet(context);
    const auto copy = context.duplicate();
    ops::barrier(*copy);
  });
}

// A rank may refuse any number of calls before its peers come to them.
TEST(Failure, ManyRefusalsAreHeardByRanksThatComeLater) {
  on_ranks({.at_least = 2}, [](Context& context) {
    constexpr int kCalls = 100;
    float value = 1;
    const BufferView buffer{.data = &value, .count = context.rank() == 0 ? -1 : 1};
    if (context.rank() != 0) {
      meet(context);
    }
    for (int i = 0; i < kCalls; ++i) {
      const auto [rank, text] = failure_of([&] { ops::allreduce(context, buffer); });
      EXPECT_THAT(text, HasSubstr("count")) << "call " << i;
    }
    if (context.rank() == 0) {
      meet(context);
    }
  });
}

TEST(Failure, AFlightRecordTellsWhomAStalledCallWaitedFor) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("bluefog_flight_{}", ::getpid());
  std::filesystem::create_directories(folder);
  on_ranks({.at_least = 2,
            .at_most = 2,
            .settings =
                [&](Settings& settings, int) {
                  settings.flight_recorder = folder / "record";
                  settings.timeout = std::chrono::milliseconds(300);
                },
            .expect_usable = false},
           [&](Context& context) {
             float value = 1;
             ops::barrier(context);
             if (context.rank() == 0) {
               EXPECT_THROW(ops::allreduce(context, {.data = &value, .count = 1}, {.name = "late"}),
                            TimeoutError);
               std::ifstream file(folder / "record0.json");
               std::stringstream text;
               text << file.rdbuf();
               EXPECT_THAT(
                   text.str(),
                   AllOf(HasSubstr("\"name\": \"late\""), HasSubstr("\"kind\": \"barrier\""),
                         HasSubstr("\"state\": \"running\""), HasSubstr("nothing moved")));
               EXPECT_THAT(text.str(), ContainsRegex("\"no_message_from\": \\[[ \n]*1"));
             } else {
               std::this_thread::sleep_for(std::chrono::milliseconds(700));
             }
           });
  std::filesystem::remove_all(folder);
}

TEST(Failure, AClosedContextRefuses) {
  on_ranks(Ranks{.expect_usable = false}, [](Context& context) {
    ops::barrier(context);
    context.close();
    context.close();
    float value = 1;
    const BufferView buffer{.data = &value, .count = 1};
    EXPECT_THROW(ops::barrier(context), StateError);
    EXPECT_THROW(ops::allreduce(context, buffer), StateError);
    EXPECT_THROW((void)ops::broadcast_nonblocking(context, buffer, 0), StateError);
    EXPECT_THROW(ops::neighbor_allreduce(context, buffer, ring(context)), StateError);
    EXPECT_THROW(ops::allreduce(context, {.data = nullptr, .count = 1}), InvalidArgument);
    EXPECT_THROW((void)context.duplicate(), StateError);
  });
}

TEST(Failure, ClosingEndsCallsInFlight) {
  on_ranks({.at_least = 2, .expect_usable = false}, [](Context& context) {
    std::vector<float> values(100'000, 1.0F);
    if (context.rank() == 0) {
      const Work work =
          ops::allreduce_nonblocking(context, {.data = values.data(), .count = 100'000});
      context.close();
      EXPECT_TRUE(work.done());
      EXPECT_THROW(work.wait(), StateError);
    }
  });
}

TEST(Failure, AnInterruptEndsAWait) {
  on_ranks({.at_least = 2, .expect_usable = false}, [](Context& context) {
    if (context.rank() == 0) {
      context.set_interrupt_check([] { throw std::runtime_error("interrupted"); });
      EXPECT_THROW(ops::barrier(context), std::runtime_error);
      context.set_interrupt_check(nullptr);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  });
}

TEST(Failure, AnInterruptCheckMayCloseTheContext) {
  on_ranks({.at_least = 2, .expect_usable = false}, [](Context& context) {
    if (context.rank() == 0) {
      context.set_interrupt_check([&context] { context.close(); });
      EXPECT_THROW(ops::barrier(context), StateError);
      context.set_interrupt_check(nullptr);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  });
}

TEST(Failure, NamesStayOnOneLineOfAMessage) {
  on_ranks(Ranks{}, [](Context& context) {
    const auto no_room = [](const std::vector<std::int64_t>&) { return BufferView{.count = 2}; };
    float value = 1;
    try {
      ops::allgather(context, ConstBufferView(&value, 1, Dtype::Float32), no_room,
                     {.name = "two\nlines"});
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank {}", context.rank())));
      EXPECT_THAT(error.what(), HasSubstr("name 'two?lines'"));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
