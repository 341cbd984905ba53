#include "ops/neighbor_allreduce_multi.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/bodies/in_place/component_plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Plan plan_of(const MixingMatrix& graph, const Context& context) {
  return kept(graph.plan_for(context.rank()));
}

/// Buffers of several dtypes and lengths, of which one is longer than a piece.
std::vector<Values> values_of(int rank) {
  std::vector<Values> values;
  for (const std::size_t count :
       {std::size_t{3}, std::size_t{0}, large(1'200'000), std::size_t{70'001}, std::size_t{1}}) {
    for (const Dtype dtype : kFloatingDtypes) {
      if (dtype == Dtype::Float32 || count < 1000) {
        values.push_back(thirds(dtype, count, rank));
      }
    }
  }
  return values;
}

std::vector<BufferView> views_of(std::vector<Values>& values) {
  std::vector<BufferView> views;
  for (Values& each : values) {
    views.push_back(each.view());
  }
  return views;
}

TEST(NeighborAllreduceMulti, GivesTheBitsOfSingleCalls) {
  on_ranks([](Context& context) {
    for (const MixingMatrix& graph :
         {topology::exponential(context.size()), topology::ring(context.size())}) {
      const Plan plan = plan_of(graph, context);
      for (const auto check : {ops::PlanCheck::Trusted, ops::PlanCheck::Checked}) {
        std::vector<Values> single = values_of(context.rank());
        std::vector<Values> together = single;
        for (Values& each : single) {
          ops::neighbor_allreduce(context, each.view(), plan);
        }
        ops::neighbor_allreduce_multi(context, views_of(together), plan, {.check = check});
        for (std::size_t k = 0; k < single.size(); ++k) {
          ASSERT_EQ(together[k], single[k]) << "buffer " << k;
        }
      }
    }
  });
}

/// Rank 0's buffers lie one after the other, which the others' do not.
TEST(NeighborAllreduceMulti, BuffersInARowAreAveragedWhereTheyAre) {
  on_ranks([](Context& context) {
    const Plan plan = plan_of(topology::ring(context.size()), context);
    constexpr std::size_t kCount = 5000;
    Values whole = thirds(Dtype::Float32, 3 * kCount, context.rank());
    std::vector<Values> apart;
    std::vector<BufferView> parts;
    for (std::size_t k = 0; k < 3; ++k) {
      apart.push_back(Values(Dtype::Float32, kCount));
      std::memcpy(apart[k].bytes().data(), whole.bytes().data() + k * kCount * sizeof(float),
                  kCount * sizeof(float));
      BufferView part = whole.view();
      part.data = static_cast<float*>(part.data) + k * kCount;
      part.count = kCount;
      parts.push_back(part);
    }
    ops::neighbor_allreduce_multi(context, context.rank() == 0 ? parts : views_of(apart), plan);
    Values expected = thirds(Dtype::Float32, 3 * kCount, context.rank());
    ops::neighbor_allreduce(context, expected.view(), plan);
    if (context.rank() != 0) {
      for (std::size_t k = 0; k < 3; ++k) {
        std::memcpy(whole.bytes().data() + k * kCount * sizeof(float), apart[k].bytes().data(),
                    kCount * sizeof(float));
      }
    }
    EXPECT_EQ(whole, expected);
  });
}

TEST(NeighborAllreduceMulti, ListsThatDifferAreAMismatchAndChangeNothing) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const Plan plan = plan_of(topology::fully_connected(context.size()), context);
    const bool is_first = context.rank() == 0;
    // As many elements in all.
    std::vector<Values> values{thirds(Dtype::Float32, is_first ? 10 : 30, context.rank()),
                               thirds(Dtype::Float32, is_first ? 30 : 10, context.rank())};
    const std::vector<Values> before = values;
    EXPECT_THAT(error_of<Error>([&] {
                  ops::neighbor_allreduce_multi(context, views_of(values), plan, {.name = "w"});
                }),
                HasSubstr("w 2 buffers, list "));
    EXPECT_EQ(values, before);
    EXPECT_THAT(error_of<Error>([&] {
                  const std::vector<BufferView> some{values[0].view()};
                  ops::neighbor_allreduce_multi(context,
                                                is_first ? std::vector<BufferView>{} : some, plan);
                }),
                HasSubstr("0 buffers"));
    EXPECT_EQ(values, before);
    // Nobody has lost a step.
    std::vector<Values> same{thirds(Dtype::Float32, 10, 0), thirds(Dtype::Float32, 30, 0)};
    const std::vector<Values> equal = same;
    ops::neighbor_allreduce_multi(context, views_of(same), plan);
    EXPECT_EQ(same, equal);
  });
}

/// Nobody knows a step that is made by hand but by the comparison, which comes once.
TEST(NeighborAllreduceMulti, AllPiecesOfAComparedStepAreInPlace) {
  on_ranks(everywhere(2), [](Context& context) {
    NeighborPlan own = topology::ring(context.size()).plan_for(context.rank());
    own.step = nullptr;
    std::vector<Values> values(3, thirds(Dtype::Float32, 140'000, context.rank()));
    Values single = values[0];
    ops::neighbor_allreduce(context, single.view(), kept(own), {.check = ops::PlanCheck::Checked});
    const std::uint64_t sums_before = sums(context);
    ops::neighbor_allreduce_multi(context, views_of(values), kept(own),
                                  {.check = ops::PlanCheck::Checked});
    for (const Values& each : values) {
      EXPECT_EQ(each, single);
    }
    if (context.core().shared_memory() && context.hosts().machine_count() == 1 &&
        context.size() <= 4) {
      EXPECT_EQ(sums(context) - sums_before, 2U);  // the first and the last one lie in one buffer
    }
  });
}

/// A one-way ring: most ranks hear of rank 0's error over others alone, some not at all. `wrong`
/// makes its buffers such that it fails, in a call of several pieces.
void expect_that_a_failed_call_is_one_call(
    const std::function<void(std::vector<BufferView>&)>& wrong) {
  on_ranks({.at_least = 3}, [&](Context& context) {
    const Plan plan = plan_of(topology::ring(context.size(), topology::RingStyle::Right), context);
    const auto value = [&](std::size_t k, int rank) {
      return 100.0 * static_cast<double>(k) + (rank + context.size()) % context.size();
    };
    const auto make = [&] {
      std::vector<Values> values;
      for (std::size_t k = 0; k < 3; ++k) {
        values.emplace_back(Dtype::Float32, std::vector<double>(140'000, value(k, context.rank())));
      }
      return values;
    };
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<Values> first = make();
      std::vector<BufferView> views = views_of(first);
      if (context.rank() == 0) {
        wrong(views);
      }
      try {
        ops::neighbor_allreduce_multi(context, views, plan);
        EXPECT_NE(context.rank(), 0);
      } catch (const Error&) {
      }
      std::vector<Values> second = make();
      try {
        ops::neighbor_allreduce_multi(context, views_of(second), plan);
      } catch (const LateMismatchError&) {
        // Of the first call, on the rank whose message rank 0 refused; this one has done its work.
      }
      for (std::size_t k = 0; k < 3; ++k) {
        ASSERT_EQ(second[k][139'999],
                  (value(k, context.rank()) + value(k, context.rank() - 1)) / 2);
      }
    }
  });
}

TEST(NeighborAllreduceMulti, ARefusedCallOfManyPiecesIsOneCall) {
  expect_that_a_failed_call_is_one_call([](auto& views) { views[1] = views[0]; });
}

TEST(NeighborAllreduceMulti, AMismatchedCallOfManyPiecesIsOneCall) {
  expect_that_a_failed_call_is_one_call([](auto& views) { views.pop_back(); });
}

TEST(NeighborAllreduceMulti, NoBuffersAreACallToo) {
  on_ranks([](Context& context) {
    const Plan plan = plan_of(topology::ring(context.size()), context);
    ops::neighbor_allreduce_multi(context, {}, plan);
    const std::vector<BufferView> empty{{.data = nullptr, .count = 0}};
    ops::neighbor_allreduce_multi(context, empty, plan);
    ops::barrier(context);
  });
}

TEST(NeighborAllreduceMulti, RefusesWrongArguments) {
  on_ranks([](Context& context) {
    std::vector<float> memory(8);
    const Plan plan = plan_of(topology::ring(context.size()), context);
    const BufferView good{.data = memory.data(), .count = 4};
    const auto error = [&](const BufferView& second, const Plan& with) {
      const std::vector<BufferView> buffers{good, second};
      return error_of<InvalidArgument>(
          [&] { ops::neighbor_allreduce_multi(context, buffers, with); });
    };
    EXPECT_THAT(error({.data = memory.data() + 4, .count = 4}, nullptr),
                HasSubstr("expected a plan, found a null pointer"));
    EXPECT_THAT(error({.data = nullptr, .count = 4}, plan),
                HasSubstr("found a null pointer; it is buffer 1 of the 2"));
    EXPECT_THAT(error({.data = memory.data() + 4, .count = 2, .dtype = Dtype::Int32}, plan),
                AllOf(HasSubstr("found int32"), HasSubstr("; it is buffer 1 of the 2")));
    EXPECT_THAT(error({.data = memory.data() + 3, .count = 4}, plan),
                HasSubstr("neighbor_allreduce_multi: expected buffers that are apart, found that "
                          "buffers 0 and 1 of 2 overlap"));
  });
}

}  // namespace
}  // namespace bluefog::testing
