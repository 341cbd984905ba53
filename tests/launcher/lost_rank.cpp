// lost_rank WAY [STEPS]: ranks average, one of them is lost on the way, and the others go on.
//
// WAY: kill (rank 2 is killed, with a child of its own alive), first (rank 0 is), two (rank 3 is
// killed, then rank 0), stop (rank 1 is stopped), exit (rank 2 exits by itself with code 3).
// lost_rank until FILE: nobody ends by itself; until there is the file, or for 20 steps beyond the
// loss of a rank. Ranks say "under way" when they are.
// Prints a line for each rank that comes to the end.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/schedule.hpp"

namespace {

using bluefog::BufferView;
using bluefog::Context;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kCount = 1 << 20;

void end_here(const std::string& way) {
  if (way == "exit") {
    std::_Exit(3);
  }
  if (fork() == 0) {  // a worker that outlives its parent
    prctl(PR_SET_PDEATHSIG, 0);
    sleep(3);
    _exit(0);
  }
  kill(getpid(), way == "stop" ? SIGSTOP : SIGKILL);
}

/// Whether this rank of the launch is lost in that step.
bool ends_in(const std::string& way, int rank, int step) {
  constexpr int kStep = 20;
  constexpr int kSecond = 40;
  if (way == "first") {
    return rank == 0 && step == kStep;
  }
  if (way == "two") {
    return (rank == 3 && step == kStep) || (rank == 0 && step == kSecond);
  }
  return rank == (way == "stop" ? 1 : 2) && step == kStep;
}

/// The furthest rank's step: those that were behind go on with the others.
int furthest(Context& context, int step) {
  std::vector<int> steps(static_cast<std::size_t>(context.size()));
  bluefog::ops::allgather(
      context, BufferView{.data = &step, .count = 1, .dtype = bluefog::Dtype::Int32},
      [&](const std::vector<std::int64_t>&) -> BufferView {
        return {.data = steps.data(), .count = context.size(), .dtype = bluefog::Dtype::Int32};
      });
  return *std::ranges::max_element(steps);
}

/// Collective: whether a rank has found the file.
bool is_told_to_end(Context& context, const std::string& file) {
  float found = std::filesystem::exists(file) ? 1 : 0;
  bluefog::ops::allreduce(context, BufferView{.data = &found, .count = 1},
                          {.reduction = bluefog::ops::Reduction::Sum});
  return found > 0;
}

bluefog::Schedule schedule_for(int size) { return bluefog::topology::one_peer_exponential(size); }

int run(const std::string& way, int steps, const std::string& file) {
  constexpr int kStepsBeyondTheLoss = 20;
  std::shared_ptr<Context> context = Context::create();
  const int launch_rank = context->rank();
  const auto memory = context->allocate_shared(kCount * sizeof(float));
  const BufferView buffer{.data = memory.get(), .count = kCount};
  std::fill_n(reinterpret_cast<float*>(memory.get()), kCount, static_cast<float>(launch_rank));
  bluefog::Schedule schedule = schedule_for(context->size());
  double longest = 0;
  for (int step = 0; step < steps; ++step) {
    if (file.empty() && ends_in(way, launch_rank, step)) {
      end_here(way);
    }
    if (!file.empty() && step == 3) {
      fmt::print("rank {}: under way\n", launch_rank);
      std::fflush(stdout);
    }
    const auto begin = Clock::now();
    try {
      bluefog::ops::neighbor_allreduce(*context, buffer, schedule.plan_for(context->rank(), step));
      if (!file.empty() && context->membership().epoch == 0 && is_told_to_end(*context, file)) {
        break;
      }
    } catch (const bluefog::RankLostError&) {
      context = context->shrink();
      schedule = schedule_for(context->size());
      step = furthest(*context, step);
      steps = file.empty() ? steps : step + kStepsBeyondTheLoss;
    }
    longest = std::max(longest, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  float sum = 1;
  bluefog::ops::allreduce(*context, BufferView{.data = &sum, .count = 1},
                          {.reduction = bluefog::ops::Reduction::Sum});
  std::string lost;
  for (const auto& loss : context->membership().lost) {
    lost += fmt::format(" {}", loss.rank);
  }
  fmt::print(
      "rank {} of the launch is rank {} of {} (epoch {}), sum {}, without{}, longest {:.1f} ms\n",
      launch_rank, context->rank(), context->size(), context->membership().epoch, sum, lost,
      longest * 1000);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kSteps = 60;
  if (argc < 2) {
    return 2;
  }
  try {
    const std::string way = argv[1];
    const bool lasts = way == "until" && argc > 2;
    const int steps = argc > 2 && !lasts ? std::atoi(argv[2]) : kSteps;
    return run(way, lasts ? std::numeric_limits<int>::max() : steps, lasts ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
