// Sums in memory that the ranks of a host share: the same bits as of buffers apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/bodies/in_place/shared_values.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

/// Two ranks, each with weights of its own.
std::shared_ptr<const NeighborPlan> pair_plan(const Context& context, bool is_even) {
  const int other = 1 - context.rank();
  const double own = is_even ? 0.5 : 0.3 + 0.4 * context.rank();
  return std::make_shared<const NeighborPlan>(
      NeighborPlan{.rank = context.rank(),
                   .size = 2,
                   .self_weight = own,
                   .sources = {{.rank = other, .weight = is_even ? 0.5 : 1.0 - own}},
                   .destinations = {{.rank = other, .weight = is_even ? 1.0 : 1.25}}});
}

TEST(SharedBuffers, GiveTheSumsOfBuffersApart) {
  on_ranks({.at_most = few(8, 4)}, [](Context& context) {
    for (const Dtype dtype : looked_at(kAllDtypes)) {
      if (dtype == Dtype::Bool) {
        continue;
      }
      const bool is_floating =
          std::ranges::find(kFloatingDtypes, dtype) != std::end(kFloatingDtypes);
      for (const std::size_t count : counts(dtype)) {
        Values apart = is_floating ? thirds(dtype, count, context.rank())
                                   : small_integers(dtype, count, context.rank());
        SharedValues shared(context, apart, size_of(dtype));
        const ops::AllreduceOptions options{.reduction = is_floating ? ops::Reduction::Average
                                                                     : ops::Reduction::Sum};
        ops::allreduce(context, apart.view(), options);
        ops::allreduce(context, shared.view(), options);
        ASSERT_EQ(shared.values(), apart) << name_of(dtype) << "[" << count << "]";
        ASSERT_TRUE(shared.has_its_marks()) << name_of(dtype) << "[" << count << "]";
      }
    }
  });
}

TEST(SharedBuffers, GiveTheAveragesOfPairs) {
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    for (const bool is_even : {true, false}) {
      const auto plan = pair_plan(context, is_even);
      for (const Dtype dtype : kFloatingDtypes) {
        for (const std::size_t count : counts(dtype)) {
          Values apart = thirds(dtype, count, context.rank());
          SharedValues shared(context, apart);
          ops::neighbor_allreduce(context, apart.view(), plan);
          ops::neighbor_allreduce(context, shared.view(), plan, {.check = ops::PlanCheck::Checked});
          ASSERT_EQ(shared.values(), apart) << name_of(dtype) << "[" << count << "]";
          ASSERT_TRUE(shared.has_its_marks()) << name_of(dtype) << "[" << count << "]";
        }
      }
    }
  });
}

TEST(SharedBuffers, MeetBuffersThatAreNot) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const std::size_t count = counts(Dtype::Float32).back();
    const Values before = thirds(Dtype::Float32, count, context.rank());
    Values expected = before;
    ops::allreduce(context, expected.view());
    for (int alone = 0; alone < context.size(); ++alone) {
      Values apart = before;
      SharedValues shared(context, before);
      const bool is_apart = context.rank() == alone;
      ops::allreduce(context, is_apart ? apart.view() : shared.view());
      ASSERT_EQ(is_apart ? apart : shared.values(), expected) << "rank " << alone << " apart";
    }
  });
}

// One rank's output is its input, the other one's is not.
TEST(SharedBuffers, MeetCallsThatAreNotInPlace) {
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    const auto plan = pair_plan(context, true);
    const Values before = thirds(Dtype::Float32, counts(Dtype::Float32).back(), context.rank());
    Values expected = before;
    ops::neighbor_allreduce(context, expected.view(), plan);
    SharedValues input(context, before);
    SharedValues output(context,
                        context.rank() == 0 ? Values(before.dtype(), before.count()) : before);
    if (context.rank() == 0) {
      ops::neighbor_allreduce(context, input.view(), output.view(), plan);
      EXPECT_EQ(input.values(), before);
    } else {
      ops::neighbor_allreduce(context, output.view(), plan);
    }
    EXPECT_EQ(output.values(), expected);
  });
}

TEST(SharedBuffers, MayBeManyCallsAtOnce) {
  on_ranks([](Context& context) {
    constexpr int kCalls = 6;
    const std::size_t count = counts(Dtype::Float32)[1];
    std::vector<SharedValues> buffers;
    std::vector<Work> works;
    for (int i = 0; i < kCalls; ++i) {
      buffers.emplace_back(context, small_integers(Dtype::Float32, count, context.rank() + i));
    }
    for (const SharedValues& buffer : buffers) {
      works.push_back(
          ops::allreduce_nonblocking(context, buffer.view(), {.reduction = ops::Reduction::Sum}));
    }
    for (int i = kCalls - 1; i >= 0; --i) {
      works[static_cast<std::size_t>(i)].wait();
      Values expected = small_integers(Dtype::Float32, count, context.rank() + i);
      ops::allreduce(context, expected.view(), {.reduction = ops::Reduction::Sum});
      ASSERT_EQ(buffers[static_cast<std::size_t>(i)].values(), expected) << "call " << i;
    }
  });
}

TEST(SharedBuffers, StayAsTheyWereInCallsThatDiffer) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const std::size_t count =
        counts(Dtype::Float32).back() + static_cast<std::size_t>(context.rank());
    const Values before = thirds(Dtype::Float32, count, context.rank());
    SharedValues shared(context, before);
    const std::string found = failure_of([&] { ops::allreduce(context, shared.view()); }).second;
    EXPECT_THAT(found, HasSubstr("allreduce(float32[" + std::to_string(count) + "]"));
    EXPECT_THAT(found, HasSubstr("called allreduce(float32["));
    EXPECT_EQ(shared.values(), before);
  });
}

// Ranks that know where a buffer is may write to it late: nobody else gets that memory.
TEST(SharedBuffers, AreNotGivenOutAgainAfterAFailedCall) {
  on_ranks({.at_least = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    const std::size_t count = counts(Dtype::Float32)[1];
    const auto allocate = [&] { return context.allocate_shared(count * sizeof(float)); };
    const void* const first = allocate().get();
    const void* const again = allocate().get();
    EXPECT_EQ(again, first) << "what was freed is given out again";
    auto memory = allocate();
    const BufferView buffer{.data = memory.get(), .count = static_cast<std::int64_t>(count)};
    if (context.rank() == 0) {
      EXPECT_THROW(ops::allreduce(context, {.data = nullptr, .count = buffer.count}),
                   InvalidArgument);
    } else {
      EXPECT_EQ(failure_of([&] { ops::allreduce(context, buffer); }).first, 0);
    }
    memory.reset();
    EXPECT_EQ(allocate().get() == first, context.rank() == 0);
    ops::barrier(context);
  });
}

TEST(SharedBuffers, TooLargeOnesAreErrors) {
  on_ranks([](Context& context) {
    try {
      (void)context.allocate_shared(std::size_t{1} << 50U);
      ADD_FAILURE() << "there was memory";
    } catch (const TransportError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("rank " + std::to_string(context.rank()) + ", allocate_shared: "));
    }
    EXPECT_EQ(context.allocate_shared(1).get()[0], std::byte{0});
  });
}

TEST(SharedBuffers, OutliveTheirContext) {
  on_ranks([](Context& context) {
    const auto copy = context.duplicate();
    const auto memory = copy->allocate_shared(kLeastBytes);
    EXPECT_EQ(memory.get()[kLeastBytes - 1], std::byte{0});
    copy->close();
    memory.get()[kLeastBytes - 1] = std::byte{1};
    EXPECT_EQ(copy->allocate_shared(1).get()[0], std::byte{0});
  });
}

}  // namespace
}  // namespace bluefog::testing
