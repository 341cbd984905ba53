// neighbor_allreduce over every mix of transports, against the dense sum, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/support/other_ranks.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog {
namespace {

using ::testing::HasSubstr;

enum class Mix { SharedMemory, Mpi, TwoHosts };

std::shared_ptr<Context> make_context(Mix mix, std::int64_t chunk_bytes = 256 << 10) {
  Settings settings;
  settings.timeout = std::chrono::seconds(20);
  settings.mpi_chunk_bytes = chunk_bytes;
  settings.transport = mix == Mix::Mpi ? TransportChoice::Mpi : TransportChoice::Auto;
  auto bootstrap = make_default_bootstrap(settings, Deadline::after(settings.timeout));
  if (mix == Mix::TwoHosts) {
    settings.host_id = bootstrap->rank() % 2 == 0 ? "even" : "odd";
  }
  return Context::create(std::move(bootstrap), settings);
}

// Small integers: every sum is exact.
std::vector<float> values(int rank, std::int64_t count, int round) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<float>((static_cast<int>(i % 97) + 13 * rank + round) % 64);
  }
  return result;
}

// A power-of-two weight for each value that rank i gives to rank j.
double weight(int i, int j) { return 1.0 / (1 << (1 + (i + 2 * j) % 4)); }

// Everybody hears everybody.
std::shared_ptr<const NeighborPlan> full_plan(int rank, int size) {
  auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(rank, size));
  plan->self_weight = weight(rank, rank);
  for (int other = 0; other < size; ++other) {
    if (other != rank) {
      plan->sources.push_back({other, weight(rank, other)});
      plan->destinations.push_back({other, other % 2 == 0 ? 1.0 : 2.0});
    }
  }
  return plan;
}

std::vector<float> expected(int rank, int size, std::int64_t count, int round) {
  std::vector<float> result(static_cast<std::size_t>(count), 0.0F);
  for (int other = 0; other < size; ++other) {
    const double sent = other == rank || rank % 2 == 0 ? 1.0 : 2.0;
    const auto factor = static_cast<float>(weight(rank, other) * sent);
    const std::vector<float> theirs = values(other, count, round);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] += factor * theirs[i];
    }
  }
  return result;
}

BufferView view(std::vector<float>& data) {
  return {.data = data.data(),
          .count = static_cast<std::int64_t>(data.size()),
          .dtype = Dtype::Float32};
}

class RoutingTest : public ::testing::TestWithParam<Mix> {};

TEST_P(RoutingTest, UsesTheTransportsThatItShould) {
  const auto context = make_context(GetParam());
  for (int peer = 0; peer < context->size(); ++peer) {
    const bool same_host = GetParam() == Mix::SharedMemory ||
                           (GetParam() == Mix::TwoHosts && peer % 2 == context->rank() % 2);
    EXPECT_EQ(context->transport_to(peer),
              peer == context->rank() ? "self" : (same_host ? "shm" : "mpi"));
  }
}

TEST_P(RoutingTest, SumsAreExactForEverySize) {
  const auto context = make_context(GetParam(), 16 << 10);
  const auto plan = full_plan(context->rank(), context->size());
  int round = 0;
  for (const std::int64_t count : {0, 1, 15, 16, 17, 1000, 4096, 100'003, 1 << 20}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<float> data = values(context->rank(), count, ++round);
      ops::neighbor_allreduce(*context, view(data), plan);
      EXPECT_EQ(data, expected(context->rank(), context->size(), count, round));
    }
  }
}

TEST_P(RoutingTest, ManyCallsInFlight) {
  constexpr int kCalls = 40;
  constexpr std::int64_t kCount = 20'000;
  const auto context = make_context(GetParam());
  const auto plan = full_plan(context->rank(), context->size());
  std::vector<std::vector<float>> data;
  std::vector<Work> works;
  for (int call = 0; call < kCalls; ++call) {
    data.push_back(values(context->rank(), kCount, call));
  }
  for (auto& tensor : data) {
    works.push_back(ops::neighbor_allreduce_nonblocking(*context, view(tensor), plan));
  }
  for (int call = 0; call < kCalls; ++call) {
    works[call].wait();
    EXPECT_EQ(data[call], expected(context->rank(), context->size(), kCount, call));
  }
}

TEST_P(RoutingTest, ResultsThatWaitForTheirCaller) {
  constexpr std::int64_t kCount = 300'000;
  const auto context = make_context(GetParam());
  const auto plan = full_plan(context->rank(), context->size());
  for (int round = 0; round < 5; ++round) {
    std::vector<float> data = values(context->rank(), kCount, round);
    ops::NeighborAllreduceOptions options;
    options.completion = ops::Completion::OnWait;
    const Work work = ops::neighbor_allreduce_nonblocking(*context, view(data), plan, options);
    EXPECT_EQ(data, values(context->rank(), kCount, round));
    work.wait();
    EXPECT_EQ(data, expected(context->rank(), context->size(), kCount, round));
  }
}

TEST_P(RoutingTest, AMismatchIsAnErrorOnBothSidesAndTheContextGoesOn) {
  const auto context = make_context(GetParam());
  if (context->size() < 2) {
    GTEST_SKIP() << testing::other_ranks("two ranks");
  }
  const auto plan = full_plan(context->rank(), context->size());
  for (const int count : {1, 5000, 1 << 20}) {
    std::vector<float> uneven(static_cast<std::size_t>(count + context->rank()), 1.0F);
    try {
      ops::neighbor_allreduce(*context, view(uneven), plan);
      ADD_FAILURE() << "expected an error on rank " << context->rank();
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("neighbor_allreduce(float32[" + std::to_string(uneven.size()) + "])"));
    }
    std::vector<float> data = values(context->rank(), 1000, count);
    ops::neighbor_allreduce(*context, view(data), plan);
    EXPECT_EQ(data, expected(context->rank(), context->size(), 1000, count));
  }
}

TEST_P(RoutingTest, ContextsComeAndGo) {
  for (int round = 0; round < 5; ++round) {
    const auto context = make_context(GetParam());
    const auto plan = full_plan(context->rank(), context->size());
    std::vector<float> data = values(context->rank(), 100, round);
    ops::neighbor_allreduce(*context, view(data), plan);
    EXPECT_EQ(data, expected(context->rank(), context->size(), 100, round));
  }
}

TEST_P(RoutingTest, OneSidedStep) {
  const auto context = make_context(GetParam());
  if (context->size() < 2) {
    GTEST_SKIP() << testing::other_ranks("two ranks");
  }
  // Rank 0 sends to all and hears nobody: it goes on while its data are on their way.
  auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(context->rank(), context->size()));
  for (int other = 1; other < context->size() && context->rank() == 0; ++other) {
    plan->destinations.push_back({other, 1.0});
  }
  if (context->rank() != 0) {
    plan->sources.push_back({0, 1.0});
  }
  constexpr std::int64_t kCount = 1 << 18;
  std::vector<float> data = values(context->rank(), kCount, 0);
  ops::neighbor_allreduce(*context, view(data), plan);
  const std::vector<float> own = values(context->rank(), kCount, 0);
  const std::vector<float> first = values(0, kCount, 0);
  for (std::size_t i = 0; i < data.size(); ++i) {
    ASSERT_EQ(data[i], context->rank() == 0 ? own[i] : own[i] + first[i]);
  }
}

std::string name_of_mix(const ::testing::TestParamInfo<Mix>& mix) {
  return mix.param == Mix::SharedMemory ? "SharedMemory"
         : mix.param == Mix::Mpi        ? "Mpi"
                                        : "TwoHosts";
}

// Rank 0 hands out its data and then does something else, without any call into this library.
TEST_P(RoutingTest, DataArriveWhileTheirSenderIsBusy) {
  const auto context = make_context(GetParam(), 16 << 10);
  const auto deadline = Deadline::after(std::chrono::seconds(20));
  std::string folder = ::testing::TempDir() + "routing_XXXXXX";
  if (context->rank() == 0) {
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  }
  const auto names =
      context->core().bootstrap().allgather(std::as_bytes(std::span(folder)), deadline);
  folder.assign(reinterpret_cast<const char*>(names[0].data()), names[0].size());
  const auto receipt_of = [&folder](int rank) { return folder + "/" + std::to_string(rank); };

  auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(context->rank(), context->size()));
  for (int other = 1; other < context->size() && context->rank() == 0; ++other) {
    plan->destinations.push_back({other, 1.0});
  }
  if (context->rank() != 0) {
    plan->sources.push_back({0, 1.0});
  }
  std::vector<float> data = values(context->rank(), 1 << 20, 0);
  ops::NeighborAllreduceOptions options;
  options.completion = ops::Completion::OnWait;
  const Work work = ops::neighbor_allreduce_nonblocking(*context, view(data), plan, options);
  for (int other = 1; other < context->size() && context->rank() == 0; ++other) {
    while (!std::filesystem::exists(receipt_of(other)) && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(std::filesystem::exists(receipt_of(other))) << "rank " << other << " got nothing";
  }
  work.wait();
  if (context->rank() != 0) {
    std::ofstream(receipt_of(context->rank())) << "here";
  }
  context->core().bootstrap().barrier(Deadline::after(std::chrono::seconds(30)));
  if (context->rank() == 0) {
    std::filesystem::remove_all(folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, RoutingTest,
                         ::testing::Values(Mix::SharedMemory, Mix::Mpi, Mix::TwoHosts),
                         name_of_mix);

}  // namespace
}  // namespace bluefog
