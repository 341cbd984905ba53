#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "ops/collectives.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

/// Gathers with `count_of(rank)` elements from each rank and compares with the expected result.
template <typename CountOf>
void gather_and_check(Context& context, Dtype dtype, CountOf count_of) {
  std::vector<std::int64_t> expected_counts;
  std::vector<double> expected;
  for (int rank = 0; rank < context.size(); ++rank) {
    const std::size_t count = count_of(rank);
    expected_counts.push_back(static_cast<std::int64_t>(count));
    const auto part = small_integers(dtype, count, rank).to_doubles();
    expected.insert(expected.end(), part.begin(), part.end());
  }
  Values input = small_integers(dtype, count_of(context.rank()), context.rank());
  Values output(dtype, std::size_t{0});
  int allocations = 0;
  ops::allgather(context, input.view(), [&](const std::vector<std::int64_t>& counts) {
    EXPECT_EQ(counts, expected_counts);
    ++allocations;
    output = Values(dtype, expected.size());
    return output.view();
  });
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(output, Values(dtype, expected));
}

TEST(Allgather, EveryDtype) {
  on_ranks([](Context& context) {
    for (const Dtype dtype : kAllDtypes) {
      gather_and_check(context, dtype, [](int) { return std::size_t{9}; });
    }
  });
}

TEST(Allgather, CountsMayDifferAndBeZero) {
  on_ranks([](Context& context) {
    const int size = context.size();
    gather_and_check(context, Dtype::Float32, [](int rank) {
      return rank % 2 == 0 ? std::size_t{0} : static_cast<std::size_t>(rank) * 1000;
    });
    gather_and_check(context, Dtype::Int64,
                     [](int rank) { return large(static_cast<std::size_t>(rank) * 10000) + 1; });
    gather_and_check(context, Dtype::Bool, [size](int rank) {
      return rank == size - 1 ? large(1'000'000) : std::size_t{0};
    });
    gather_and_check(context, Dtype::Float16, [](int) { return std::size_t{0}; });
  });
}

TEST(Allgather, InputMayLieInTheResult) {
  on_ranks([](Context& context) {
    const std::size_t each = 20000;
    const auto size = static_cast<std::size_t>(context.size());
    std::vector<float> memory(each * size);
    // The rank's part lies at another place than in the result.
    const std::size_t place = (static_cast<std::size_t>(context.rank()) + 1) % size * each;
    std::fill_n(memory.begin() + static_cast<std::ptrdiff_t>(place), each,
                static_cast<float>(context.rank()));
    const BufferView all{.data = memory.data(), .count = static_cast<std::int64_t>(memory.size())};
    ops::allgather(context, {memory.data() + place, each, Dtype::Float32},
                   [&](const auto&) { return all; });
    for (std::size_t k = 0; k < memory.size(); ++k) {
      ASSERT_EQ(memory[k], static_cast<float>(k / each)) << k;
    }
  });
}

TEST(Allgather, PartsAreWhatTheRanksPassed) {
  on_ranks([](Context& context) {
    std::vector<std::string> texts;
    std::vector<std::vector<double>> numbers;
    for (int rank = 0; rank < context.size(); ++rank) {
      texts.emplace_back(static_cast<std::size_t>(rank), static_cast<char>('a' + rank));
      numbers.emplace_back(static_cast<std::size_t>(2 * rank), 0.5 * rank);
    }
    const auto own = static_cast<std::size_t>(context.rank());
    EXPECT_EQ(ops::allgather_parts(context, "texts", texts[own]), texts);
    EXPECT_EQ(ops::allgather_parts(context, "numbers", numbers[own]), numbers);
    const std::vector<std::int32_t> integer(1, -context.rank());
    EXPECT_EQ(ops::allgather_parts(context, "integer", integer).back(),
              std::vector<std::int32_t>{1 - context.size()});
  });
}

TEST(Allgather, WrongAllocationsAndArguments) {
  on_ranks([](Context& context) {
    float value = 1;
    const ConstBufferView input(&value, 1, Dtype::Float32);
    EXPECT_THROW(ops::allgather(context, input, nullptr), InvalidArgument);
    EXPECT_THROW(ops::allgather(context, {nullptr, 1, Dtype::Float32},
                                [](const auto&) { return BufferView{}; }),
                 InvalidArgument);
    try {
      ops::allgather(context, input, [](const auto&) { return BufferView{}; });
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), HasSubstr("expected the allocation callback to return room for"));
    }
    EXPECT_THROW(
        ops::allgather(context, input, [](const auto&) -> BufferView { throw std::bad_alloc(); }),
        std::bad_alloc);
  });
}

}  // namespace
}  // namespace bluefog::testing
