// A graph of one's own, here a line of ranks, with weights by Metropolis and Hastings' rule.
#include <iostream>
#include <memory>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/edge_list.hpp"

int main() {
  auto context = bluefog::Context::create();
  std::vector<bluefog::WeightedEdge> edges;
  for (int rank = 0; rank + 1 < context->size(); ++rank) {
    edges.push_back({.source = rank, .destination = rank + 1});
    edges.push_back({.source = rank + 1, .destination = rank});
  }
  const auto graph = bluefog::topology::from_unweighted_edges(
      context->size(), edges, bluefog::topology::WeightRule::MetropolisHastings);
  auto plan = std::make_shared<const bluefog::NeighborPlan>(graph.plan_for(context->rank()));

  std::vector<float> x(1000, static_cast<float>(context->rank()));
  for (int step = 0; step < 100; ++step) {
    bluefog::ops::neighbor_allreduce(*context, {x.data(), 1000, bluefog::Dtype::Float32}, plan);
  }
  std::cout << "rank " << context->rank() << ": " << x[0] << '\n';
}
