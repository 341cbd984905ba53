// The last rank dies while it holds the mutex of rank 0's part of a window; rank 0 must get the
// mutex all the same, and puts to the dead rank must end as PeerFailure. One line per survivor.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/window.hpp"
#include "topology/static_graphs.hpp"

int main() {
  using namespace bluefog;
  Settings settings = Settings::from_environment();
  settings.timeout = std::chrono::seconds(20);
  const auto context = Context::create(settings);
  const int last = context->size() - 1;
  std::vector<float> value(1000, 1.0F);
  const BufferView view{.data = value.data(), .count = 1000};
  const NeighborPlan plan = topology::fully_connected(context->size()).plan_for(context->rank());
  const auto window = ops::Window::create(*context, view, plan, {.name = "w"});
  if (context->rank() == last) {
    const auto lock = window->lock({0});
    ops::barrier(*context);
    std::raise(SIGKILL);
  }
  ops::barrier(*context);
  try {
    if (context->rank() == 0) {
      const auto lock = window->lock_self();
      window->update();
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(15);
    while (std::chrono::steady_clock::now() < end) {
      window->put(view, {.destinations = {{{.rank = last}}}});
    }
  } catch (const PeerFailure& failure) {
    std::printf("survivor %d heard of rank %d: %s\n", context->rank(), failure.rank(),
                failure.what());
    return 0;
  } catch (const Error& error) {
    std::printf("rank %d: %s\n", context->rank(), error.what());
  }
  return 1;
}
