// Writes what each call did, and whom it waited for: timeline0.json, …, for Perfetto.
// The variable BLUEFOG_TIMELINE does the same to a program that is not changed.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/static_graphs.hpp"

int main() {
  auto settings = bluefog::Settings::from_environment();
  settings.timeline = "timeline";
  auto context = bluefog::Context::create(settings);
  const auto graph = bluefog::topology::ring(context->size());
  auto plan = std::make_shared<const bluefog::NeighborPlan>(graph.plan_for(context->rank()));

  std::vector<float> x(1000, static_cast<float>(context->rank()));
  bluefog::ops::neighbor_allreduce(*context, {x.data(), 1000, bluefog::Dtype::Float32}, plan,
                                   {.name = "parameters"});
  std::cout << "rank " << context->rank() << ": timeline" << context->rank() << ".json\n";
}
