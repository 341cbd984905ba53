// Averages with neighbours, over and over: all ranks come to the mean of all.
#include <iostream>
#include <memory>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/static_graphs.hpp"

int main() {
  auto context = bluefog::Context::create();  // the ranks of this launch
  const auto graph = bluefog::topology::exponential(context->size());
  // This rank's part of the graph: whom it sends to, whom it hears, and with which weights.
  auto plan = std::make_shared<const bluefog::NeighborPlan>(graph.plan_for(context->rank()));

  std::vector<float> x(1000, static_cast<float>(context->rank()));
  for (int step = 0; step < 50; ++step) {
    bluefog::ops::neighbor_allreduce(*context, {x.data(), 1000, bluefog::Dtype::Float32}, plan);
  }
  std::cout << "rank " << context->rank() << ": " << x[0] << '\n';
}
