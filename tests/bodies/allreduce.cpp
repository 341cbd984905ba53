#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sum_contract.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

/// Around the change from one exchange to two (4096 bytes) and, for two dtypes, around slots
/// (128 KiB).
std::vector<std::size_t> counts(Dtype dtype) {
  const std::size_t element = size_of(dtype);
  std::vector<std::size_t> counts{0, 1, 7, 1000};
  for (const std::size_t bytes : {std::size_t{4096}, large(131072)}) {
    if (bytes == 4096 || dtype == Dtype::Float32 || dtype == Dtype::Int16) {
      counts.insert(counts.end(), {bytes / element - 1, bytes / element, bytes / element + 1});
    }
  }
  return counts;
}

Values expected_sum(Dtype dtype, std::size_t count, const std::vector<int>& ranks) {
  std::vector<double> sums(count);
  for (const int rank : ranks) {
    const Values values = small_integers(dtype, count, rank);
    for (std::size_t k = 0; k < count; ++k) {
      sums[k] += values[k];
    }
  }
  return {dtype, sums};
}

std::vector<int> all_ranks(const Context& context) {
  std::vector<int> ranks;
  for (int rank = 0; rank < context.size(); ++rank) {
    ranks.push_back(rank);
  }
  return ranks;
}

TEST(Allreduce, SumsEveryDtypeAndSize) {
  on_ranks([](Context& context) {
    for (const Dtype dtype : kAllDtypes) {
      if (dtype == Dtype::Bool) {
        continue;
      }
      for (const std::size_t count : counts(dtype)) {
        Values values = small_integers(dtype, count, context.rank());
        ops::allreduce(context, values.view(), {.reduction = ops::Reduction::Sum});
        ASSERT_EQ(values, expected_sum(dtype, count, all_ranks(context)))
            << name_of(dtype) << "[" << count << "]";
      }
    }
  });
}

TEST(Allreduce, SumsSeveralMebibytes) {
  on_ranks([](Context& context) {
    const std::size_t count = large(std::size_t{3} << 20U) / sizeof(float) + 3;
    Values values = small_integers(Dtype::Float32, count, context.rank());
    ops::allreduce(context, values.view(), {.reduction = ops::Reduction::Sum});
    EXPECT_EQ(values, expected_sum(Dtype::Float32, count, all_ranks(context)));
  });
}

/// Means count from the lowest rank's value, and are rounded to the element's type once.
TEST(Allreduce, AveragesCountFromTheLowestRank) {
  on_ranks([](Context& context) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : {std::size_t{5}, std::size_t{9001}}) {
        const auto value_of = [&](int rank) {
          Values values(dtype, count);
          for (std::size_t k = 0; k < count; ++k) {
            values.set(k, std::sin(static_cast<double>(k) + 10.0 * rank) * (rank == 1 ? 1e4 : 1));
          }
          return values;
        };
        std::vector<Values> inputs;
        for (int rank = 0; rank < context.size(); ++rank) {
          inputs.push_back(value_of(rank));
        }
        const Values expected = expected_mean(inputs);
        Values values = value_of(context.rank());
        ops::allreduce(context, values.view());
        ASSERT_EQ(values, expected) << name_of(dtype) << "[" << count << "]";
      }
    }
  });
}

TEST(Allreduce, IntegersWrapAround) {
  on_ranks({.at_least = 2}, [](Context& context) {
    std::vector<std::int8_t> values(100, 127);
    ops::allreduce(context, {.data = values.data(), .count = 100, .dtype = Dtype::Int8},
                   {.reduction = ops::Reduction::Sum});
    const auto wrapped = static_cast<std::int8_t>(static_cast<unsigned char>(127 * context.size()));
    EXPECT_EQ(values, std::vector<std::int8_t>(100, wrapped));
  });
}

TEST(Allreduce, PassesInfinitiesAndNaNOn) {
  on_ranks({.at_least = 2}, [](Context& context) {
    std::vector<float> values(3000, 1.0F);
    values[0] = std::numeric_limits<float>::infinity();
    values[2999] = context.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
    ops::allreduce(context, {.data = values.data(), .count = 3000});
    EXPECT_EQ(values[0], std::numeric_limits<float>::infinity());
    EXPECT_EQ(values[1], 1.0F);
    EXPECT_TRUE(std::isnan(values[2999]));
  });
}

TEST(Allreduce, InsideEachMachine) {
  on_ranks([](Context& context) {
    const MachineLayout& machines = context.machines();
    const auto& local = machines.ranks_of(machines.machine_of(context.rank()));
    for (const std::size_t count : {std::size_t{3}, std::size_t{40000}}) {
      Values values = small_integers(Dtype::Float32, count, context.rank());
      ops::allreduce(context, values.view(),
                     {.reduction = ops::Reduction::Sum, .scope = ops::Scope::Machine});
      EXPECT_EQ(values, expected_sum(Dtype::Float32, count, local));
    }
  });
}

TEST(Allreduce, MachinesMayBePartsOfAHost) {
  on_ranks({.at_least = 4,
            .layouts = {Layout::OneHost},
            .settings = [](Settings& settings, int) { settings.nodes_per_machine = 2; }},
           [](Context& context) {
             std::vector<double> value{static_cast<double>(context.rank())};
             ops::allreduce(context, {.data = value.data(), .count = 1, .dtype = Dtype::Float64},
                            {.scope = ops::Scope::Machine});
             EXPECT_EQ(value[0], context.rank() / 2 * 2 + 0.5);
           });
}

/// Even and odd ranks by themselves, in the same call with other counts.
TEST(Allreduce, InsideGroupsWithCountsOfTheirOwn) {
  on_ranks([](Context& context) {
    std::vector<int> group;
    for (int rank = context.rank() % 2; rank < context.size(); rank += 2) {
      group.push_back(rank);
    }
    for (const std::size_t units : {std::size_t{1}, std::size_t{3000}, large(100'000)}) {
      const std::size_t count = units * (1 + static_cast<std::size_t>(context.rank()) % 2);
      const Dtype dtype = context.rank() % 2 == 0 ? Dtype::Float64 : Dtype::Float32;
      Values values = small_integers(dtype, count, context.rank());
      ops::allreduce(context, values.view(), {.reduction = ops::Reduction::Sum, .ranks = group});
      ASSERT_EQ(values, expected_sum(dtype, count, group));
    }
    // A group of one keeps its values, and counts as a call.
    float alone = static_cast<float>(context.rank());
    ops::allreduce(context, {.data = &alone, .count = 1}, {.ranks = {context.rank()}});
    EXPECT_EQ(alone, static_cast<float>(context.rank()));
  });
}

TEST(Allreduce, GroupsThatDifferAreAMismatch) {
  on_ranks({.at_least = 2, .at_most = 2, .expect_usable = false}, [](Context& context) {
    float value = 1;
    const std::vector<int> group = context.rank() == 0 ? std::vector{0, 1} : std::vector{1};
    const auto sum = [&] {
      ops::allreduce(context, {.data = &value, .count = 1}, {.ranks = group});
    };
    if (context.rank() == 0) {
      EXPECT_THAT(error_of<MismatchError>(sum), HasSubstr("average among ranks 0, 1"));
      ops::barrier(context);
    } else {
      sum();  // alone, so that this one does not hear of it before its next call
      EXPECT_THROW(ops::barrier(context), MismatchError);
    }
    meet(context);
  });
}

TEST(Allreduce, RefusesRanksThatAreNoGroup) {
  on_ranks({.at_least = 2}, [](Context& context) {
    float value = 1;
    const auto refusal = [&](const ops::AllreduceOptions& options) {
      return error_of<InvalidArgument>(
          [&] { ops::allreduce(context, {.data = &value, .count = 1}, options); });
    };
    const int other = context.rank() == 0 ? 1 : 0;
    for (const std::vector<int>& ranks :
         {std::vector{other}, std::vector{1, 0}, std::vector{0, 0, 1}, std::vector{-1, 0, 1},
          std::vector{0, 1, context.size()}}) {
      EXPECT_THAT(refusal({.ranks = ranks}), HasSubstr("ranks: expected rising numbers from 0 to"));
    }
    EXPECT_THAT(refusal({.scope = ops::Scope::Machine, .ranks = {context.rank()}}),
                HasSubstr("expected either a scope or ranks"));
  });
}

TEST(Allreduce, ManyInFlightWaitedForInReverse) {
  on_ranks([](Context& context) {
    std::vector<Values> values;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 20; ++i) {
      values.push_back(small_integers(Dtype::Float32, 1 + i * 997, context.rank()));
    }
    for (Values& value : values) {
      works.push_back(
          ops::allreduce_nonblocking(context, value.view(), {.reduction = ops::Reduction::Sum}));
    }
    for (std::size_t i = works.size(); i-- > 0;) {
      works[i].wait();
      EXPECT_TRUE(works[i].done());
      EXPECT_EQ(values[i], expected_sum(Dtype::Float32, values[i].count(), all_ranks(context)));
    }
  });
}

TEST(Allreduce, RefusesWhatItCannotReduce) {
  on_ranks([](Context& context) {
    const auto message = [&](BufferView buffer, const ops::AllreduceOptions& options) {
      try {
        ops::allreduce(context, std::move(buffer), options);
        return std::string("no error");
      } catch (const InvalidArgument& e) {
        return std::string(e.what());
      }
    };
    std::vector<float> memory(4);
    EXPECT_THAT(message({.data = memory.data(), .count = 4, .dtype = Dtype::Bool},
                        {.reduction = ops::Reduction::Sum}),
                HasSubstr("expected a numeric dtype for a sum, found bool"));
    EXPECT_THAT(message({.data = memory.data(), .count = 4, .dtype = Dtype::Int32}, {}),
                HasSubstr("for an average, found int32"));
    EXPECT_THAT(message({.data = nullptr, .count = 4}, {}), HasSubstr("null pointer"));
    EXPECT_THAT(message({.data = memory.data(), .count = -1}, {}), HasSubstr("0 or more"));
    EXPECT_THAT(message({.data = memory.data(), .count = 4, .dtype = static_cast<Dtype>(77)}, {}),
                HasSubstr("expected a dtype of Dtype, found number 77"));
    EXPECT_THAT(
        message({.data = memory.data(), .count = 4}, {.reduction = static_cast<ops::Reduction>(9)}),
        HasSubstr("expected one of Reduction, found number 9"));
    EXPECT_THAT(message({.data = memory.data(), .count = 4}, {.scope = static_cast<ops::Scope>(9)}),
                HasSubstr("expected Global or Machine, found number 9"));
  });
}

}  // namespace
}  // namespace bluefog::testing
