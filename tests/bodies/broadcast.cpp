#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

TEST(Broadcast, EveryDtypeFromEveryRoot) {
  on_ranks([](Context& context) {
    for (const Dtype dtype : kAllDtypes) {
      for (int root = 0; root < context.size(); ++root) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
          Values values = small_integers(dtype, count, context.rank());
          ops::broadcast(context, values.view(), root);
          ASSERT_EQ(values, small_integers(dtype, count, root)) << name_of(dtype) << " " << root;
        }
      }
    }
  });
}

TEST(Broadcast, SizesAroundChunksAndLargeOnes) {
  on_ranks([](Context& context) {
    const int root = context.size() - 1;
    for (const std::size_t count :
         {std::size_t{32767}, std::size_t{32768}, std::size_t{32769}, large(700'001)}) {
      Values values = small_integers(Dtype::Float32, count, context.rank());
      ops::broadcast(context, values.view(), root);
      ASSERT_EQ(values, small_integers(Dtype::Float32, count, root));
    }
  });
}

/// More hosts than the two of the other tests: a tree of some depth.
TEST(Broadcast, AcrossManyHosts) {
  on_ranks({.at_least = 3,
            .layouts = {Layout::OneHost},
            .settings =
                [](Settings& settings, int rank) {
                  settings.host_id = std::string("host") + std::to_string(rank < 6 ? rank : 5);
                },
            .pretends_hosts = true},
           [](Context& context) {
             for (int root = 0; root < context.size(); ++root) {
               Values values = small_integers(Dtype::Int16, 70000, context.rank());
               ops::broadcast(context, values.view(), root);
               ASSERT_EQ(values, small_integers(Dtype::Int16, 70000, root)) << root;
             }
           });
}

TEST(Broadcast, RootOutOfRangeIsAnErrorOnEveryRank) {
  on_ranks([](Context& context) {
    float value = 0;
    EXPECT_THROW(ops::broadcast(context, {.data = &value, .count = 1}, context.size()),
                 InvalidArgument);
    EXPECT_THROW(ops::broadcast(context, {.data = &value, .count = 1}, -1), InvalidArgument);
  });
}

}  // namespace
}  // namespace bluefog::testing
