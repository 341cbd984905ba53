// Two ranks, as threads of this process, average a vector with each other.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/static_graphs.hpp"

namespace {

void average(std::shared_ptr<bluefog::Bootstrap> bootstrap, std::vector<float>& values) {
  const auto context = bluefog::Context::create(std::move(bootstrap), bluefog::Settings{});
  const auto plan = std::make_shared<bluefog::NeighborPlan>(
      bluefog::topology::ring(context->size()).plan_for(context->rank()));
  const auto count = static_cast<std::int64_t>(values.size());
  bluefog::ops::neighbor_allreduce(*context, {values.data(), count, bluefog::Dtype::Float32}, plan);
}

}  // namespace

int main() {
  constexpr int kRanks = 2;
  std::vector<std::vector<float>> values{{0.0F, 4.0F}, {2.0F, 8.0F}};
  const auto bootstraps = bluefog::make_thread_bootstraps(kRanks);
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { average(bootstraps[rank], values[rank]); });
  }
  threads.clear();  // joins
  const std::vector<float> expected{1.0F, 6.0F};
  const bool right = values[0] == expected && values[1] == expected;
  std::printf("two ranks averaged: %s\n", right ? "right" : "wrong");
  return right ? 0 : 1;
}
