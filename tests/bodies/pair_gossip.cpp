#include "ops/pair_gossip.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

/// The other rank of the pair in a round of a tournament, where every rank meets every other one
/// once; this rank itself when it rests.
int opponent(int rank, int round, int size) {
  const int players = size + size % 2;
  const int other = (2 * players - 2 + round - rank) % (players - 1);
  int found = other;
  if (rank == players - 1) {
    found = 0;
    while ((2 * found) % (players - 1) != round % (players - 1)) {
      ++found;
    }
  } else if (other == rank) {
    found = players - 1;
  }
  return found < size ? found : rank;
}

void gossip_and_check(Context& context, Dtype dtype, std::size_t count, int target,
                      const ops::PairGossipOptions& options = {}) {
  Values own = small_integers(dtype, count, context.rank());
  const Values theirs = small_integers(dtype, count, target);
  std::vector<double> expected(count);
  for (std::size_t k = 0; k < count; ++k) {
    expected[k] = options.self_weight * own[k] + options.pair_weight * theirs[k];
  }
  ops::pair_gossip(context, own.view(), target, options);
  EXPECT_EQ(own, Values(dtype, expected));
}

TEST(PairGossip, EveryPairAndDtype) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const int players = context.size() + context.size() % 2;
    for (int round = 0; round + 1 < players; ++round) {
      const int target = opponent(context.rank(), round, context.size());
      if (target == context.rank()) {
        continue;
      }
      for (const Dtype dtype : kFloatingDtypes) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{7}, std::size_t{3000}}) {
          gossip_and_check(context, dtype, count, target);
        }
      }
      if (round == 0) {
        gossip_and_check(context, Dtype::Float32, large(300'000), target);
      }
    }
  });
}

TEST(PairGossip, EachRankHasItsOwnWeights) {
  on_ranks({.at_least = 2}, [](Context& context) {
    if (context.rank() < 2) {
      gossip_and_check(context, Dtype::Float32, 100, 1 - context.rank(),
                       {.name = "w",
                        .self_weight = context.rank() == 0 ? 0.75 : 2.0,
                        .pair_weight = context.rank() == 0 ? 0.25 : -1.0});
    }
  });
}

TEST(PairGossip, OutOfPlaceLeavesTheInput) {
  on_ranks({.at_least = 2}, [](Context& context) {
    if (context.rank() > 1) {
      return;
    }
    Values input = small_integers(Dtype::Float64, 1000, context.rank());
    const Values before = input;
    Values output(Dtype::Float64, 1000);
    ops::pair_gossip(context, input.view(), output.view(), 1 - context.rank());
    const Values theirs = small_integers(Dtype::Float64, 1000, 1 - context.rank());
    EXPECT_EQ(input, before);
    EXPECT_EQ(output[3], 0.5 * (before[3] + theirs[3]));
  });
}

// Each rank averages with both neighbours on the ring at once. There is no order among pairs, so
// none of them may wait for another one.
TEST(PairGossip, PairsInACircleDoNotWaitForEachOther) {
  on_ranks({.at_least = 3}, [](Context& context) {
    const int n = context.size();
    const std::size_t count = large(1'000'000);
    Values right = small_integers(Dtype::Float32, count, context.rank());
    Values left = right;
    const auto to_right = ops::pair_gossip_nonblocking(context, right.view(),
                                                       (context.rank() + 1) % n, {.name = "x"});
    const auto to_left = ops::pair_gossip_nonblocking(context, left.view(),
                                                      (context.rank() + n - 1) % n, {.name = "x"});
    to_right.wait();
    to_left.wait();
    const auto mean = [&](int rank, std::size_t k) {
      return 0.5 * (small_integers(Dtype::Float32, k + 1, context.rank())[k] +
                    small_integers(Dtype::Float32, k + 1, rank)[k]);
    };
    EXPECT_EQ(right[5], mean((context.rank() + 1) % n, 5));
    EXPECT_EQ(left[5], mean((context.rank() + n - 1) % n, 5));
  });
}

// The pair's calls come at different places among the calls of all ranks.
TEST(PairGossip, IsInNoOrderWithCallsOfAllRanks) {
  on_ranks({.at_least = 2}, [](Context& context) {
    Values sum(Dtype::Float64, std::vector<double>(50'000, 1.0));
    const auto all =
        ops::allreduce_nonblocking(context, sum.view(), {.reduction = ops::Reduction::Sum});
    if (context.rank() == 0) {
      gossip_and_check(context, Dtype::Float32, 1000, 1);
      all.wait();
    } else if (context.rank() == 1) {
      all.wait();
      gossip_and_check(context, Dtype::Float32, 1000, 0);
    }
    all.wait();
    EXPECT_EQ(sum[49'999], context.size());
  });
}

TEST(PairGossip, ARefusedCallIsAnErrorOnTheOtherRankAndThePairGoesOn) {
  on_ranks({.at_least = 2}, [](Context& context) {
    if (context.rank() == 0) {
      std::int32_t value = 0;
      EXPECT_THROW(
          ops::pair_gossip(context, {.data = &value, .count = 1, .dtype = Dtype::Int32}, 1),
          InvalidArgument);
    } else if (context.rank() == 1) {
      try {
        gossip_and_check(context, Dtype::Float32, 1, 0);
        ADD_FAILURE() << "expected an error";
      } catch (const PeerFailure& error) {
        EXPECT_THAT(error.what(), HasSubstr("int32"));
        EXPECT_THAT(error.what(), HasSubstr("pair call 1"));
      }
    }
    if (context.rank() < 2) {
      gossip_and_check(context, Dtype::Float32, 10, 1 - context.rank());
    }
    ops::barrier(context);
  });
}

TEST(PairGossip, AMismatchNamesBothCalls) {
  on_ranks({.at_least = 2}, [](Context& context) {
    if (context.rank() > 1) {
      return;
    }
    Values values(Dtype::Float32, context.rank() == 0 ? std::size_t{10} : std::size_t{11});
    try {
      ops::pair_gossip(context, values.view(), 1 - context.rank());
      ADD_FAILURE() << "expected an error";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("pair_gossip(float32[10])"));
      EXPECT_THAT(error.what(), HasSubstr("pair_gossip(float32[11])"));
    }
    gossip_and_check(context, Dtype::Float32, 10, 1 - context.rank());
  });
}

TEST(PairGossip, WrongArgumentsAreRefused) {
  on_ranks([](Context& context) {
    float value = 0;
    const BufferView one{.data = &value, .count = 1};
    EXPECT_THROW(ops::pair_gossip(context, one, context.rank()), InvalidArgument);
    EXPECT_THROW(ops::pair_gossip(context, one, -1), InvalidArgument);
    EXPECT_THROW(ops::pair_gossip(context, one, context.size()), InvalidArgument);
  });
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    float value = 0;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THROW(ops::pair_gossip(context, {.data = &value, .count = 1}, 1 - context.rank(),
                                  {.self_weight = nan}),
                 InvalidArgument);
    EXPECT_THROW(ops::pair_gossip(context, {.data = nullptr, .count = 1}, 1 - context.rank()),
                 InvalidArgument);
    gossip_and_check(context, Dtype::Float32, 10, 1 - context.rank());
  });
}

}  // namespace
}  // namespace bluefog::testing
