// The last rank ends in the middle of a series of calls, as its argument says (kill, orphan: it is
// killed while a child of it lives, _exit, exit, or stop: it does not go on). The others must hear
// of it as PeerFailure and end on their own, or abort or sleep if a second argument says so. Prints
// one line per survivor.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/neighbor_plan.hpp"

namespace {

constexpr int kTimedOut = 7;

/// A child, such as a worker of a pool, has copies of all that is open here, and outlives this
/// rank.
void leave_a_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      ::close(stream);  // mpirun waits for their end
    }
    ::pause();
    ::_exit(0);
  }
  std::printf("child %d\n", static_cast<int>(child));
  std::fflush(stdout);
}

[[noreturn]] void end(std::string_view way) {
  constexpr int kStatus = 6;
  if (way == "exit") {
    std::exit(kStatus);  // while main holds the context
  }
  if (way == "_exit") {
    ::_exit(kStatus);
  }
  if (way == "orphan") {
    leave_a_child();
  }
  std::raise(way == "stop" ? SIGSTOP : SIGKILL);
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace bluefog;
  const std::string_view way = argc > 1 ? argv[1] : "kill";
  Settings settings = Settings::from_environment();
  settings.timeout = std::chrono::seconds(way == "stop" ? 2 : 20);
  const auto context = Context::create(settings);
  const int last = context->size() - 1;
  auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(context->rank(), context->size()));
  for (int other = 0; other <= last; ++other) {
    if (other != context->rank()) {
      plan->sources.push_back({other, 1.0});
      plan->destinations.push_back({other, 1.0});
    }
  }
  std::vector<float> data(100'000, 1.0F);
  const bool sleeps = argc > 2 && std::string_view(argv[2]) == "sleep";
  try {
    for (int step = 0; step < 1000; ++step) {
      if (step == 5 && sleeps && context->rank() != last) {
        ::pause();
      }
      if (step == 5 && context->rank() == last) {
        end(way);
      }
      ops::neighbor_allreduce(*context,
                              {.data = data.data(),
                               .count = static_cast<std::int64_t>(data.size()),
                               .dtype = Dtype::Float32},
                              plan);
    }
  } catch (const PeerFailure& failure) {
    if (argc > 2) {
      std::abort();  // as without a handler
    }
    // A survivor may hear first of another one that has given up.
    std::printf("survivor %d heard of rank %d: %s\n", context->rank(), failure.rank(),
                failure.what());
    return way == "stop" ? kTimedOut : 0;
  } catch (const TimeoutError& error) {
    std::printf("survivor %d heard of rank %d: %s\n", context->rank(), last, error.what());
    return kTimedOut;
  }
  return 1;
}
