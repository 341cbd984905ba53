// Two hosts with two ranks each, in network namespaces (tests/hosts/netns.sh): who shares memory,
// which transport leads where, and results against the dense sum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog {
namespace {

constexpr int kHosts = 2;
constexpr int kRanksPerHost = 2;
constexpr int kRanks = kHosts * kRanksPerHost;

using ::testing::ElementsAre;

/// One context for all cases: MPI stays initialised in between anyway.
std::shared_ptr<Context> context() {
  static const std::shared_ptr<Context> shared = Context::create();
  return shared;
}

float value_of(int rank, std::size_t k, int round) {
  return static_cast<float>((static_cast<int>(k % 61) + 7 * rank + round) % 32);
}

std::vector<float> values_of(int rank, std::size_t count, int round) {
  std::vector<float> values(count);
  for (std::size_t k = 0; k < count; ++k) {
    values[k] = value_of(rank, k, round);
  }
  return values;
}

BufferView view(std::vector<float>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), Dtype::Float32};
}

TEST(Hosts, RanksKnowTheirPlaces) {
  const auto& hosts = context()->hosts();
  ASSERT_EQ(context()->size(), kRanks);
  ASSERT_EQ(hosts.machine_count(), kHosts);
  EXPECT_THAT(hosts.ranks_of(0), ElementsAre(0, 1));
  EXPECT_THAT(hosts.ranks_of(1), ElementsAre(2, 3));
  EXPECT_EQ(context()->local_rank(), context()->rank() % kRanksPerHost);
  EXPECT_EQ(context()->local_size(), kRanksPerHost);
  const char* const local_rank = std::getenv("LOCAL_RANK");
  ASSERT_NE(local_rank, nullptr) << "the launcher sets LOCAL_RANK";
  EXPECT_EQ(std::stoi(local_rank), context()->rank() % kRanksPerHost);
}

TEST(Hosts, EachEdgeUsesTheTransportOfItsPlace) {
  const bool is_tcp = context()->settings().network == NetworkChoice::Tcp;
  const std::string_view far = is_tcp ? "tcp" : "mpi";
  for (int peer = 0; peer < kRanks; ++peer) {
    const bool is_near = peer / kRanksPerHost == context()->rank() / kRanksPerHost;
    const std::string_view expected = peer == context()->rank() ? "self" : (is_near ? "shm" : far);
    EXPECT_EQ(context()->transport_to(peer), expected) << "to rank " << peer;
  }
}

TEST(Hosts, NeighborAllreduceEqualsTheDenseSum) {
  const int rank = context()->rank();
  // Exponential over 4 ranks: two sources each, one near and one far for some ranks.
  const auto matrix = topology::exponential(kRanks);
  auto plan = std::make_shared<NeighborPlan>(matrix.plan_for(rank));
  // Powers of two instead of thirds, so that sums are exact.
  plan->self_weight = 0.5;
  for (WeightedRank& source : plan->sources) {
    source.weight = 0.25;
  }
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    for (int round = 0; round < 3; ++round) {
      std::vector<float> x = values_of(rank, count, round);
      ops::neighbor_allreduce(*context(), view(x), plan);
      for (std::size_t k = 0; k < count; ++k) {
        float expected = 0.5F * value_of(rank, k, round);
        for (const WeightedRank& source : plan->sources) {
          expected += 0.25F * value_of(source.rank, k, round);
        }
        ASSERT_EQ(x[k], expected) << "element " << k << " of " << count << ", round " << round;
      }
    }
  }
}

TEST(Hosts, CollectivesCrossHosts) {
  constexpr std::size_t kCount = 100'003;
  const int rank = context()->rank();
  std::vector<float> sums = values_of(rank, kCount, 0);
  ops::AllreduceOptions options;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(*context(), view(sums), options);
  std::vector<float> copy = values_of(rank, kCount, 1);
  ops::broadcast(*context(), view(copy), kRanks - 1);
  std::vector<float> all;
  std::vector<float> own = values_of(rank, static_cast<std::size_t>(rank) + 1, 2);
  ops::allgather(*context(), {own.data(), rank + 1, Dtype::Float32},
                 [&](const std::vector<std::int64_t>& counts) {
                   EXPECT_THAT(counts, ElementsAre(1, 2, 3, 4));
                   all.resize(10);
                   return view(all);
                 });
  for (std::size_t k = 0; k < kCount; ++k) {
    ASSERT_EQ(sums[k],
              value_of(0, k, 0) + value_of(1, k, 0) + value_of(2, k, 0) + value_of(3, k, 0));
    ASSERT_EQ(copy[k], value_of(kRanks - 1, k, 1));
  }
  std::size_t at = 0;
  for (int r = 0; r < kRanks; ++r) {
    for (std::size_t k = 0; k <= static_cast<std::size_t>(r); ++k) {
      ASSERT_EQ(all[at++], value_of(r, k, 2));
    }
  }
}

TEST(Hosts, MismatchAcrossHostsIsAnErrorAndTheContextGoesOn) {
  const int rank = context()->rank();
  // Rank 0 and rank 2 are on different hosts.
  if (rank % kRanksPerHost == 0) {
    NeighborPlan plan = NeighborPlan::alone(rank, kRanks);
    plan.self_weight = 0.5;
    plan.sources = {{2 - rank, 0.5}};
    plan.destinations = {{2 - rank, 1.0}};
    std::vector<float> x(rank == 0 ? 10 : 11, 1.0F);
    EXPECT_THROW(
        ops::neighbor_allreduce(*context(), view(x), std::make_shared<const NeighborPlan>(plan)),
        MismatchError);
  } else {
    std::vector<float> x(10, 1.0F);
    ops::neighbor_allreduce(
        *context(), view(x),
        std::make_shared<const NeighborPlan>(NeighborPlan::alone(rank, kRanks)));
  }
  std::vector<float> one(1, 1.0F);
  ops::AllreduceOptions options;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(*context(), view(one), options);
  EXPECT_EQ(one[0], static_cast<float>(kRanks));
}

}  // namespace
}  // namespace bluefog
