// Averages with one other rank. Only the two of a pair call; others do something else meanwhile.
#include "ops/pair_gossip.hpp"

#include <iostream>
#include <vector>

#include "bluefog_cpp/context.hpp"

int main() {
  auto context = bluefog::Context::create();
  const int partner = context->rank() ^ 1;  // 0 with 1, 2 with 3, …

  std::vector<float> x(1000, static_cast<float>(context->rank()));
  if (partner < context->size()) {
    bluefog::ops::pair_gossip(*context, {x.data(), 1000, bluefog::Dtype::Float32}, partner);
  }
  std::cout << "rank " << context->rank() << ": " << x[0] << '\n';
}
