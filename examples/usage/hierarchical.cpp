// Averages inside each machine, then between machines, which exchange 1/L of the bytes per rank.
// BLUEFOG_NODES_PER_MACHINE=2 makes machines of two ranks each on one host.
#include <iostream>
#include <memory>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "topology/static_graphs.hpp"

int main() {
  auto context = bluefog::Context::create();
  const auto& machines = context->machines();
  const auto graph = bluefog::topology::ring(machines.machine_count());
  auto plan = std::make_shared<const bluefog::NeighborPlan>(
      graph.plan_for(machines.machine_of(context->rank())));

  std::vector<float> x(1000, static_cast<float>(context->rank()));
  for (int step = 0; step < 50; ++step) {
    bluefog::ops::hierarchical_neighbor_allreduce(*context,
                                                  {x.data(), 1000, bluefog::Dtype::Float32}, plan);
  }
  std::cout << "rank " << context->rank() << ": " << x[0] << '\n';
}
