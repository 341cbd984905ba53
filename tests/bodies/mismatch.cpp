// Ranks that do not make the same calls: an error that names both sides, and the context goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/support/ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// The message of the error that `call` ends with, if any.
std::string outcome_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::shared_ptr<const NeighborPlan> full(Context& context) {
  return std::make_shared<const NeighborPlan>(
      topology::fully_connected(context.size()).plan_for(context.rank()));
}

/// Two ranks call different things: the error of each of them names both.
void expect_both_named(Context& context, const std::function<void()>& zero,
                       const std::function<void()>& one, const std::string& name_of_zero,
                       const std::string& name_of_one) {
  const std::string error = outcome_of(context.rank() == 0 ? zero : one);
  EXPECT_THAT(error, AllOf(HasSubstr(name_of_zero), HasSubstr(name_of_one), HasSubstr("rank 0"),
                           HasSubstr("rank 1")));
}

Ranks two() { return {.at_least = 2, .at_most = 2}; }

/// Two ranks that would wait for a message as long as a test lasts.
Ranks two_patient() {
  return {.at_least = 2,
          .at_most = 2,
          .layouts = {Layout::OneHost},
          .settings = [](Settings& settings, int) { settings.timeout = 10min; }};
}

/// A plan that hears the other one of two ranks, which is not sent to.
std::shared_ptr<const NeighborPlan> hearing(const Context& context) {
  auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(context.rank(), context.size()));
  plan->sources.push_back({.rank = 1 - context.rank()});
  return plan;
}

TEST(Mismatch, ACallThatTheOtherRankHasEndedWithoutAMessageFailsAtOnce) {
  on_ranks(two_patient(), [](Context& context) {
    float value = 1;
    const BufferView buffer{.data = &value, .count = 1};
    if (context.rank() == 1) {
      ops::neighbor_allreduce(context, buffer,
                              std::make_shared<const NeighborPlan>(NeighborPlan::alone(1, 2)));
    } else {
      EXPECT_THAT(outcome_of([&] { ops::neighbor_allreduce(context, buffer, hearing(context)); }),
                  AllOf(HasSubstr("rank 0, call 1"), HasSubstr("rank 1"),
                        HasSubstr("has ended this call without one for this rank")));
    }
    meet(context);
  });
}

TEST(Mismatch, DifferentCallsThatSendNothingFailAtOnce) {
  on_ranks(two_patient(), [](Context& context) {
    float value = 1;
    const BufferView buffer{.data = &value, .count = 1};
    const auto hear = [&] { ops::neighbor_allreduce(context, buffer, hearing(context)); };
    const auto receive = [&] { ops::broadcast(context, buffer, 0); };
    EXPECT_THAT(
        context.rank() == 0 ? outcome_of(hear) : outcome_of(receive),
        // Whichever is looked at first: what the other rank does, or its answer.
        AnyOf(AllOf(HasSubstr("makes this call as"), HasSubstr("the same calls in the same order")),
              HasSubstr("mismatched calls: rank ")));
    meet(context);
  });
}

TEST(Mismatch, DifferentOperations) {
  on_ranks(two(), [](Context& context) {
    std::vector<float> values(10000, 1.0F);
    const BufferView small{.data = values.data(), .count = 4};
    const BufferView large{.data = values.data(), .count = 10000};
    for (const BufferView& buffer : {small, large}) {
      expect_both_named(
          context, [&] { ops::neighbor_allreduce(context, buffer, full(context)); },
          [&] { ops::allreduce(context, buffer); }, "neighbor_allreduce(", " allreduce(");
      expect_both_named(
          context, [&] { ops::allreduce(context, buffer); }, [&] { ops::barrier(context); },
          "allreduce(", "barrier");
    }
    EXPECT_EQ(values, std::vector<float>(10000, 1.0F)) << "nothing was combined";
  });
}

TEST(Mismatch, HeldMessagesAgainstOrdinaryOnes) {
  Ranks ranks = two();
  ranks.settings = [](Settings& settings, int /*rank*/) { settings.timeout = 1h; };
  on_ranks(ranks, [](Context& context) {
    std::vector<float> values(10000, 1.0F);
    const BufferView buffer{.data = values.data(), .count = 10000};
    const auto held = [&] {
      ops::neighbor_allreduce_nonblocking(context, buffer, full(context),
                                          {.completion = ops::Completion::OnWait})
          .wait();
    };
    expect_both_named(
        context, held, [&] { ops::barrier(context); }, "neighbor_allreduce", "barrier");
    expect_both_named(
        context, [&] { ops::allreduce(context, buffer); }, held, " allreduce",
        "neighbor_allreduce");
  });
}

// Rank 1 has room for its next message of a name once all readers of the one before have taken it,
// and one of them makes that call no more.
TEST(Mismatch, ARankThatRefusedACallTakesWhatWasSentToItAllTheSame) {
  on_ranks({.at_least = 3, .at_most = 3}, [](Context& context) {
    std::vector<float> values(10000, static_cast<float>(context.rank()));
    const BufferView buffer{.data = values.data(), .count = 10000};
    // Rank 1 sends to `reader`.
    const auto average = [&](int reader) {
      auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(context.rank(), 3));
      if (context.rank() == 1) {
        plan->destinations = {{reader, 1.0}};
      } else if (context.rank() == reader) {
        plan->sources = {{1, 1.0}};
      }
      return ops::neighbor_allreduce_nonblocking(
          context, buffer, plan, {.name = "x", .completion = ops::Completion::OnWait});
    };
    const auto other = context.duplicate();
    for (Context* const meeting : {&context, other.get()}) {
      std::ranges::fill(values, static_cast<float>(context.rank()));
      if (context.rank() == 0) {
        context.core().engine().refuse("no data");
      } else {
        average(0).wait();
      }
      average(2).wait();
      ops::barrier(*meeting);
      EXPECT_EQ(values.front(), context.rank() == 2 ? 3.0F : static_cast<float>(context.rank()));
    }
  });
}

TEST(Mismatch, DifferentSizesDtypesAndNames) {
  on_ranks(two(), [](Context& context) {
    std::vector<double> values(100000, 1.0);
    const auto call = [&](std::int64_t count, Dtype dtype, const std::string& name) {
      return [&context, &values, count, dtype, name] {
        ops::neighbor_allreduce(context, {.data = values.data(), .count = count, .dtype = dtype},
                                full(context), {.name = name});
      };
    };
    expect_both_named(context, call(4, Dtype::Float32, ""), call(5, Dtype::Float32, ""),
                      "float32[4]", "float32[5]");
    expect_both_named(context, call(4, Dtype::Float32, ""), call(100000, Dtype::Float32, ""),
                      "float32[4]", "float32[100000]");
    expect_both_named(context, call(8, Dtype::Float32, ""), call(4, Dtype::Float64, ""),
                      "float32[8]", "float64[4]");
    expect_both_named(context, call(4, Dtype::Float32, "weight"), call(4, Dtype::Float32, "bias"),
                      "'weight'", "'bias'");
    expect_both_named(context, call(4, Dtype::Float32, "weight"), call(4, Dtype::Float32, ""),
                      "'weight'", "rank 1");
  });
}

TEST(Mismatch, DifferentReductionsAndScopes) {
  on_ranks({.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    std::vector<float> values(10000, 1.0F);
    for (const std::int64_t count : {4, 10000}) {
      const auto call = [&](ops::Reduction reduction, ops::Scope scope) {
        return [&, reduction, scope] {
          ops::allreduce(context, {.data = values.data(), .count = count},
                         {.reduction = reduction, .scope = scope});
        };
      };
      expect_both_named(context, call(ops::Reduction::Sum, ops::Scope::Global),
                        call(ops::Reduction::Average, ops::Scope::Global), "'sum'", "rank 1");
      expect_both_named(context, call(ops::Reduction::Average, ops::Scope::Machine),
                        call(ops::Reduction::Average, ops::Scope::Global),
                        "'average in the machine'", "rank 1");
    }
  });
}

/// Calls in another order are two mismatches; then the ranks are in step again.
TEST(Mismatch, CallsInAnotherOrder) {
  on_ranks(two(), [](Context& context) {
    std::vector<float> a(300, 1.0F);
    std::vector<float> b(40000, 1.0F);
    const auto call = [&](std::vector<float>& values) {
      return [&] {
        ops::allreduce(context,
                       {.data = values.data(), .count = static_cast<std::int64_t>(values.size())});
      };
    };
    expect_both_named(context, call(a), call(b), "float32[300]", "float32[40000]");
    expect_both_named(context, call(b), call(a), "float32[300]", "float32[40000]");
  });
}

TEST(Mismatch, ManyCallsInFlightOfWhichOneDiffers) {
  on_ranks(two(), [](Context& context) {
    std::vector<std::vector<float>> values(9, std::vector<float>(20000, 1.0F));
    std::vector<Work> works;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t count = i == 4 && context.rank() == 1 ? 19999 : 20000;
      works.push_back(ops::allreduce_nonblocking(
          context, {.data = values[i].data(), .count = count}, {.reduction = ops::Reduction::Sum}));
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      const std::string error = outcome_of([&] { works[i].wait(); });
      if (i == 4) {
        EXPECT_THAT(error, AllOf(HasSubstr("float32[20000]"), HasSubstr("float32[19999]")));
      } else {
        EXPECT_EQ(error, "no error") << i;
        EXPECT_EQ(values[i], std::vector<float>(20000, 2.0F)) << i;
      }
    }
  });
}

TEST(Mismatch, ARefusedCallEndsTheWaitOfItsPeersAndNamesTheReason) {
  on_ranks({.at_least = 2}, [](Context& context) {
    std::vector<float> values(100, 1.0F);
    const BufferView good{.data = values.data(), .count = 100};
    const BufferView bad{.data = nullptr, .count = 100};
    const BufferView& own = context.rank() == 1 ? bad : good;
    for (int again = 0; again < 2; ++again) {
      EXPECT_THAT(outcome_of([&] { ops::allreduce(context, own); }), HasSubstr("null pointer"));
      EXPECT_THAT(outcome_of([&] { ops::neighbor_allreduce(context, own, full(context)); }),
                  HasSubstr("null pointer"));
      EXPECT_THAT(outcome_of([&] { ops::broadcast(context, own, 1); }), HasSubstr("null pointer"));
    }
  });
}

/// An error in the middle of a call reaches those that still wait for this rank.
TEST(Mismatch, AnAllocationThatFailsEndsTheCallOfThePeers) {
  on_ranks({.at_least = 2}, [](Context& context) {
    float value = 1;
    std::vector<float> all(static_cast<std::size_t>(context.size()));
    const std::string error = outcome_of([&] {
      ops::allgather(context, {&value, 1, Dtype::Float32}, [&](const auto&) {
        if (context.rank() == 1) {
          throw InvalidArgument("no room for the result");
        }
        return BufferView{.data = all.data(), .count = context.size()};
      });
    });
    EXPECT_THAT(error, HasSubstr("no room for the result"));
  });
}

TEST(Mismatch, DifferentRootsOfABroadcast) {
  on_ranks({.at_least = 3, .at_most = 3, .layouts = {Layout::OneHost}}, [](Context& context) {
    float value = static_cast<float>(context.rank());
    const int root = context.rank() == 1 ? 1 : 0;
    const std::string error =
        outcome_of([&] { ops::broadcast(context, {.data = &value, .count = 1}, root); });
    const std::string later = outcome_of([&] { ops::barrier(context); });
    // Rank 2 follows rank 0 and need not know; the two that differ learn of it here or in the next.
    if (context.rank() != 2) {
      EXPECT_THAT(error + later, AllOf(HasSubstr("broadcast(float32[1], name 'root"),
                                       HasSubstr("did not expect")));
    }
  });
}

/// Whoever sent it has finished that call, and whoever got it has made no mistake in the later one:
/// the error of both says so.
TEST(Mismatch, AMessageThatNobodyExpectsIsALateErrorThatNamesBothCalls) {
  on_ranks(two(), [](Context& context) {
    NeighborPlan plan = NeighborPlan::alone(context.rank(), context.size());
    if (context.rank() == 0) {
      plan.destinations = {{.rank = 1}};
    }
    float value = 1;
    ops::neighbor_allreduce(context, {.data = &value, .count = 1},
                            std::make_shared<const NeighborPlan>(plan), {.name = "lost"});
    std::string said;
    for (int call = 0; call < 100; ++call) {
      try {
        ops::barrier(context);
      } catch (const LateMismatchError& error) {
        said = error.what();
      }
    }
    EXPECT_THAT(said, AllOf(HasSubstr("barrier"), HasSubstr("heard of an earlier call only now"),
                            HasSubstr("call 1"), HasSubstr("'lost'")));
  });
}

/// The ranks' graphs differ, but all senders and receivers are the same.
TEST(Mismatch, GraphsThatDifferInWhatTheirPlansDoNotShow) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const auto error_with = [&](std::uint64_t graph) {
      NeighborPlan plan = *full(context);
      plan.graph = graph;
      float value = 1;
      return outcome_of([&] {
        ops::neighbor_allreduce(context, {.data = &value, .count = 1},
                                std::make_shared<const NeighborPlan>(std::move(plan)),
                                {.check = ops::PlanCheck::Checked});
      });
    };
    EXPECT_EQ(error_with(7), "no error");
    EXPECT_EQ(error_with(context.rank() == 0 ? 7 : 0), "no error");
    EXPECT_THAT(error_with(context.rank() == 1 ? 8 : 7),
                HasSubstr("ranks 0 and 1 were given different ones"));
  });
}

/// One rank compares plans first, the other does not: both get an error that explains it.
TEST(Mismatch, ACallThatComparesPlansMeetsOneThatDoesNot) {
  on_ranks(two(), [](Context& context) {
    float value = 1;
    const std::string error = outcome_of([&] {
      ops::neighbor_allreduce(
          context, {.data = &value, .count = 1}, full(context),
          {.check = context.rank() == 0 ? ops::PlanCheck::Checked : ops::PlanCheck::Trusted});
    });
    EXPECT_THAT(error, HasSubstr("rank 0 compares the ranks' topologies first"));
  });
}

}  // namespace
}  // namespace bluefog::testing
