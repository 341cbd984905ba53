// One-sided: a rank writes into the buffers that its neighbours keep for it. They call nothing.
#include <iostream>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/barrier.hpp"
#include "ops/window.hpp"
#include "topology/static_graphs.hpp"

int main() {
  auto context = bluefog::Context::create();
  const auto graph = bluefog::topology::exponential(context->size());

  std::vector<float> x(1000, static_cast<float>(context->rank()));
  const bluefog::BufferView view{x.data(), 1000, bluefog::Dtype::Float32};
  auto window =
      bluefog::ops::Window::create(*context, view, graph.plan_for(context->rank()), {.name = "x"});
  for (int step = 0; step < 50; ++step) {
    window->put(view);
    bluefog::ops::barrier(*context);  // for figures that are the same in each run; not needed else
    window->update();                 // the average of the own value and the buffers
    bluefog::ops::barrier(*context);
  }
  std::cout << "rank " << context->rank() << ": " << x[0] << '\n';
  window->free();
}
