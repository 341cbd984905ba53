// One neighbour a step, by turns. On 2^k ranks the mean is exact after k steps.
#include <iostream>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/schedule.hpp"

int main() {
  auto context = bluefog::Context::create();
  const auto schedule = bluefog::topology::one_peer_exponential(context->size());

  std::vector<float> x(1000, static_cast<float>(context->rank()));
  for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
    bluefog::ops::neighbor_allreduce(*context, {x.data(), 1000, bluefog::Dtype::Float32},
                                     schedule.plan_for(context->rank(), step));
  }
  std::cout << "rank " << context->rank() << ": " << x[0] << '\n';
}
