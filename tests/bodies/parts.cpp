#include "ops/parts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/message.hpp"
#include "ops/reduce.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// What `rank` has for `other`, of a size of its own.
Values part(Dtype dtype, std::size_t count, int rank, int other) {
  return small_integers(dtype, count + static_cast<std::size_t>(other + 2 * rank),
                        16 * rank + other);
}

std::vector<Values> empty_like(const std::vector<Values>& parts) {
  std::vector<Values> made;
  for (const Values& one : parts) {
    made.emplace_back(one.dtype(), one.count());
  }
  return made;
}

std::vector<BufferView> views(std::vector<Values>& parts) {
  std::vector<BufferView> made;
  for (Values& one : parts) {
    made.push_back(one.view());
  }
  return made;
}

std::vector<ConstBufferView> inputs(std::vector<Values>& parts) {
  const auto all = views(parts);
  return {all.begin(), all.end()};
}

/// The parts of all ranks for `other`.
std::vector<Values> parts_for(const Context& context, Dtype dtype, std::size_t count, int other) {
  std::vector<Values> made;
  for (int rank = 0; rank < context.size(); ++rank) {
    made.push_back(part(dtype, count, rank, other));
  }
  return made;
}

/// The parts of `rank` for all ranks.
std::vector<Values> parts_of(const Context& context, Dtype dtype, std::size_t count, int rank) {
  std::vector<Values> made;
  for (int other = 0; other < context.size(); ++other) {
    made.push_back(part(dtype, count, rank, other));
  }
  return made;
}

/// Counts of one part; the largest takes several chunks, and parts for all ranks much the same time.
std::vector<std::size_t> counts(const Context& context) {
  return {0, 1, 5000, large(300'000) / static_cast<std::size_t>(context.size())};
}

TEST(Parts, GoToTheirPlacesInEverySize) {
  on_ranks([](Context& context) {
    for (const Dtype dtype : {Dtype::Float32, Dtype::Int16, Dtype::Bool}) {
      for (const std::size_t count : counts(context)) {
        auto sent = parts_of(context, dtype, count, context.rank());
        const auto expected = parts_for(context, dtype, count, context.rank());
        auto got = empty_like(expected);
        ops::alltoall_nonblocking(context, inputs(sent), views(got)).wait();
        ASSERT_EQ(got, expected) << "alltoall " << count;

        // Part 0 of each rank.
        const auto all = parts_for(context, dtype, count, 0);
        got = empty_like(all);
        ops::allgather_parts_nonblocking(context, sent[0].view(), views(got)).wait();
        ASSERT_EQ(got, all) << "allgather " << count;
      }
    }
  });
}

TEST(Parts, ToAndFromEveryRoot) {
  on_ranks([](Context& context) {
    for (int root = 0; root < context.size(); ++root) {
      for (const std::size_t count : counts(context)) {
        const bool is_root = context.rank() == root;
        auto own = part(Dtype::Float64, count, context.rank(), 0);
        const auto all = parts_for(context, Dtype::Float64, count, 0);
        auto got = is_root ? empty_like(all) : std::vector<Values>();
        ops::gather_nonblocking(context, own.view(), views(got), root).wait();
        ASSERT_TRUE(!is_root || got == all) << "gather " << root;

        auto sent = is_root ? parts_of(context, Dtype::Int32, count, root) : std::vector<Values>();
        const auto expected = part(Dtype::Int32, count, root, context.rank());
        Values output(Dtype::Int32, expected.count());
        ops::scatter_nonblocking(context, inputs(sent), output.view(), root).wait();
        ASSERT_EQ(output, expected) << "scatter " << root;
      }
    }
  });
}

TEST(Parts, ThatAreNotAsExpectedAreAMismatchOnBothRanks) {
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    std::vector<Values> got(2, Values(Dtype::Float32, context.rank() == 0 ? 3 : 4));
    auto own = got[0];
    EXPECT_THAT(failure_of([&] {
                  ops::allgather_parts_nonblocking(context, own.view(), views(got)).wait();
                }).second,
                HasSubstr("and expected"));
    EXPECT_THROW((void)ops::allgather_parts_nonblocking(context, own.view(), {}), InvalidArgument);
    EXPECT_THROW((void)ops::gather_nonblocking(context, own.view(), {}, 2), InvalidArgument);
  });
}

/// The fold of all ranks' values, in double.
Values folded(ops::Reduction rule, std::vector<Values> all) {
  Values result = all[0];
  for (std::size_t k = 0; k < result.count(); ++k) {
    double value = all[0][k];
    for (std::size_t r = 1; r < all.size(); ++r) {
      const double next = all[r][k];
      value = rule == ops::Reduction::Sum   ? value + next
              : rule == ops::Reduction::Min ? std::min(value, next)
              : rule == ops::Reduction::Max ? std::max(value, next)
              : rule == ops::Reduction::Product
                  ? value * next
                  : static_cast<double>(static_cast<int>(value) ^ static_cast<int>(next));
    }
    result.set(k, value);
  }
  return result;
}

TEST(Reduce, EveryRuleToEveryRoot) {
  using enum ops::Reduction;
  on_ranks([](Context& context) {
    for (const ops::Reduction rule : {Sum, Min, Max, Product, Xor}) {
      const Dtype dtype = rule == Xor ? Dtype::Int32 : Dtype::Float64;
      for (const std::size_t count : {std::size_t{3}, std::size_t{7001}}) {
        std::vector<Values> all;
        for (int rank = 0; rank < context.size(); ++rank) {
          all.push_back(small_integers(dtype, count, rank));
        }
        const Values expected = folded(rule, all);
        for (int root = 0; root < context.size(); ++root) {
          Values own = all[static_cast<std::size_t>(context.rank())];
          const Values before = own;
          ops::reduce_nonblocking(context, own.view(), root, {.reduction = rule}).wait();
          ASSERT_EQ(own, context.rank() == root ? expected : before);
        }
        Values everywhere = all[static_cast<std::size_t>(context.rank())];
        ops::allreduce(context, everywhere.view(), {.reduction = rule});
        ASSERT_EQ(everywhere, expected);
      }
    }
  });
}

TEST(Reduce, PartsOfDifferentSizesToTheirOwners) {
  on_ranks([](Context& context) {
    for (const std::size_t count : counts(context)) {
      const auto size_of_part = [&](int owner) { return count + static_cast<std::size_t>(owner); };
      std::vector<Values> own;
      for (int owner = 0; owner < context.size(); ++owner) {
        own.push_back(small_integers(Dtype::Float32, size_of_part(owner), context.rank() + owner));
      }
      std::vector<Values> all;
      for (int rank = 0; rank < context.size(); ++rank) {
        all.push_back(
            small_integers(Dtype::Float32, size_of_part(context.rank()), rank + context.rank()));
      }
      Values output(Dtype::Float32, size_of_part(context.rank()));
      ops::reduce_scatter_nonblocking(context, inputs(own), output.view()).wait();
      ASSERT_EQ(output, folded(ops::Reduction::Sum, all));
      // In place: the output is the own input.
      auto& place = own[static_cast<std::size_t>(context.rank())];
      ops::reduce_scatter_nonblocking(context, inputs(own), place.view()).wait();
      ASSERT_EQ(place, folded(ops::Reduction::Sum, all));
    }
  });
}

// Sums that come in would lie on what has not left yet.
TEST(Reduce, AnOutputWhereAnInputForAnotherRankLiesIsRefused) {
  on_ranks({.at_least = 2, .at_most = 4}, [](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    std::vector<Values> own(size, Values(Dtype::Float32, 300'000));
    const auto next = (static_cast<std::size_t>(context.rank()) + 1) % size;
    EXPECT_THAT(failure_of([&] {
                  ops::reduce_scatter_nonblocking(context, inputs(own), own[next].view()).wait();
                }).second,
                HasSubstr("expected inputs and outputs apart, found an input of 1200000 bytes"));
  });
}

TEST(Reduce, RulesThatDifferAndDtypesThatARuleHasNot) {
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    Values own = small_integers(Dtype::Float32, 4, 1);
    const auto rule = context.rank() == 0 ? ops::Reduction::Min : ops::Reduction::Max;
    EXPECT_THAT(
        failure_of([&] { ops::allreduce(context, own.view(), {.reduction = rule}); }).second,
        AnyOf(HasSubstr("mismatched calls"), HasSubstr("did not accept this rank's message")));
    EXPECT_THROW(ops::allreduce(context, own.view(), {.reduction = ops::Reduction::And}),
                 InvalidArgument);
    EXPECT_THROW((void)ops::reduce_nonblocking(context, own.view(), 2), InvalidArgument);
  });
}

/// Ranks 0 and 1 make `call` as each other's root, or as their own.
void expect_both_roots(const std::function<void(Context&, int root)>& call, bool is_own_root) {
  on_ranks({.at_least = 2, .at_most = 2}, [&](Context& context) {
    const int root = is_own_root ? context.rank() : 1 - context.rank();
    EXPECT_THAT(failure_of([&] { call(context, root); }).second,
                AllOf(HasSubstr("mismatched calls"), HasSubstr("root 0"), HasSubstr("root 1"),
                      HasSubstr("rank 0 called"), HasSubstr("rank 1 called")));
    Values sum = small_integers(Dtype::Float32, 4, context.rank());
    const Values expected = folded(ops::Reduction::Sum, {small_integers(Dtype::Float32, 4, 0),
                                                         small_integers(Dtype::Float32, 4, 1)});
    ops::allreduce(context, sum.view(), {.reduction = ops::Reduction::Sum});
    EXPECT_EQ(sum, expected);
  });
}

TEST(Parts, TwoRootsOfAReduceHearOfEachOther) {
  for (const std::size_t count : {4U, 70'001U}) {
    expect_both_roots(
        [&](Context& context, int root) {
          Values own = small_integers(Dtype::Float32, count, context.rank());
          ops::reduce_nonblocking(context, own.view(), root).wait();
        },
        true);
  }
}

TEST(Parts, TwoRootsOfAGatherHearOfEachOther) {
  expect_both_roots(
      [](Context& context, int root) {
        Values own = small_integers(Dtype::Float32, 4, context.rank());
        std::vector<Values> places(2, Values(Dtype::Float32, 4));
        ops::gather_nonblocking(context, own.view(), views(places), root).wait();
      },
      true);
}

TEST(Parts, RanksThatWaitForEachOtherAsTheRootOfAScatterHearOfIt) {
  expect_both_roots(
      [](Context& context, int root) {
        Values own(Dtype::Float32, 4);
        ops::scatter_nonblocking(context, {}, own.view(), root).wait();
      },
      false);
}

TEST(Parts, ANegativeTagIsRefused) {
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    Values own = small_integers(Dtype::Float32, 4, context.rank());
    EXPECT_THROW((void)ops::send_nonblocking(context, own.view(), 1 - context.rank(), -1),
                 InvalidArgument);
    EXPECT_THROW((void)ops::receive_nonblocking(context, own.view(), 1 - context.rank(), -1),
                 InvalidArgument);
  });
}

}  // namespace
}  // namespace bluefog::testing
